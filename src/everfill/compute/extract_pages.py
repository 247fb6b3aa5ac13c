"""PDF, HTML and plain text to text.

Runs only inside the reader process; whatever a library raises counts as a broken file.
"""
# ruff: noqa: PLC0415 - the libraries are imported by format; together they take two seconds

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, cast

from everfill.compute.charset import decode_text
from everfill.compute.extract_result import Extract, UnreadableError, bounded
from everfill.compute.pages import mark_pages

if TYPE_CHECKING:
    from selectolax.lexbor import LexborHTMLParser

__all__ = ["read_html", "read_pdf", "read_text"]

_PDF_PASSWORD: Final = 4
_SOFT_BREAK: Final = re.compile("[\x02\ufffe]\\s*")
"""How PDFium writes a hyphen that only the line's end put there."""


def read_pdf(data: bytes) -> Extract:
    """Each page with its mark; blank where no page has text (scans)."""
    import pypdfium2 as pdfium  # pyright: ignore[reportMissingTypeStubs] - it ships none

    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        if cast("Any", error).err_code == _PDF_PASSWORD:
            raise UnreadableError(
                "file_encrypted", "The PDF is protected by a password."
            ) from error
        raise UnreadableError(
            "file_broken", f"The PDF cannot be opened: {str(error).rstrip('.')}."
        ) from error
    texts = list(bounded(_pdf_page(page) for page in document))
    title = cast("Any", document).get_metadata_value("Title").strip() or None
    text = mark_pages(texts) if any(page.strip() for page in texts) else ""
    return Extract(text=text, format="pdf", title=title)


def _pdf_page(page: Any) -> str:
    text_page = page.get_textpage()
    text: str = text_page.get_text_bounded()
    text_page.close()
    page.close()
    return _SOFT_BREAK.sub("", text.replace("\r\n", "\n")).replace("\x00", "")


def read_html(data: bytes, charset: str | None) -> Extract:
    """The main text of a page, or where there is none all of it, and the title of its head."""
    import trafilatura
    from selectolax.lexbor import LexborHTMLParser

    page = decode_text(data, charset, html=True).replace("\x00", "")
    tree = LexborHTMLParser(page)
    title, heading = _line(tree, "title"), _line(tree, "main h1, article h1") or _line(tree, "h1")
    text = trafilatura.extract(page, fast=True, include_comments=False)
    if not text:
        tree.strip_tags(["script", "style", "noscript", "template", "svg", "head"])
        lines = tree.text(separator="\n").splitlines()
        text = "\n".join(" ".join(line.split()) for line in lines if line.strip())
    return Extract(text=_headed(text, heading or title), format="html", title=title or None)


def _line(tree: LexborHTMLParser, selector: str) -> str:
    found = tree.css_first(selector)
    return " ".join(found.text().split()) if found else ""


def _headed(text: str, heading: str) -> str:
    """With what the page is called above it, which the search for its main text may leave out."""
    if not heading or not text or heading in " ".join(text.split()):
        return text
    return f"{heading}\n\n{text}"


def read_text(data: bytes, charset: str | None) -> Extract:
    """The text as it is, with line ends made one kind."""
    return Extract(text=decode_text(data, charset).replace("\r\n", "\n"), format="text")
