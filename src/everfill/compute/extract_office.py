"""Office documents to text: DOCX, PPTX, and the workbooks that calamine reads (XLSX, XLS, ODS).

Runs only inside the reader process; whatever a library raises counts as a broken file.
"""
# ruff: noqa: PLC0415 - the libraries are imported by format; together they take two seconds

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from everfill.compute.extract_result import Extract, UnreadableError, bounded
from everfill.compute.pages import mark_pages

if TYPE_CHECKING:
    from docx.document import Document
    from docx.table import Table
    from pptx.shapes.base import BaseShape
    from pptx.slide import Slide

__all__ = ["read_docx", "read_pptx", "read_sheets"]


def read_docx(data: bytes) -> Extract:
    """Paragraphs and tables in their order; a table row is a line with tabs."""
    import docx

    document = docx.Document(io.BytesIO(data))
    text = "\n".join(bounded(_docx_blocks(document))).strip()
    return Extract(text=text, format="docx", title=document.core_properties.title.strip() or None)


def _docx_blocks(document: Document) -> Iterator[str]:
    from docx.table import Table

    for block in document.iter_inner_content():
        if isinstance(block, Table):
            yield from _docx_rows(block)
        else:
            yield block.text


def _docx_rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        cells = {id(cell._tc): cell.text.strip() for cell in row.cells}  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a merged cell comes once for every place
        yield "\t".join(text.replace("\n", " ") for text in cells.values())


def read_pptx(data: bytes) -> Extract:
    """Each slide as a page, with its tables and notes."""
    import pptx

    deck = pptx.Presentation(io.BytesIO(data))
    texts = list(bounded("\n".join(_slide_lines(slide)) for slide in deck.slides))
    title = deck.core_properties.title.strip() or None
    text = mark_pages(texts) if any(page.strip() for page in texts) else ""
    return Extract(text=text, format="pptx", title=title)


def _slide_lines(slide: Slide) -> Iterator[str]:
    for shape in slide.shapes:
        yield from _shape_lines(shape)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame):
        yield notes.text


def _shape_lines(shape: BaseShape) -> Iterator[str]:
    from pptx.shapes.autoshape import Shape
    from pptx.shapes.graphfrm import GraphicFrame
    from pptx.shapes.group import GroupShape

    if isinstance(shape, GroupShape):
        for inner in shape.shapes:
            yield from _shape_lines(inner)
    elif isinstance(shape, GraphicFrame) and shape.has_table:
        for row in shape.table.rows:
            yield "\t".join(cell.text.replace("\n", " ") for cell in row.cells)
    elif isinstance(shape, Shape) and shape.text_frame.text.strip():
        yield shape.text_frame.text.replace("\v", "\n")


def read_sheets(data: bytes) -> Extract:
    """Each sheet as a page: its name, then its rows as lines with tabs."""
    import python_calamine

    try:
        book = python_calamine.CalamineWorkbook.from_filelike(io.BytesIO(data))
    except python_calamine.PasswordError as error:
        raise UnreadableError(
            "file_encrypted", "The workbook is protected by a password."
        ) from error
    sheets = ((name, book.get_sheet_by_name(name).iter_rows()) for name in book.sheet_names)
    texts = list(bounded("\n".join([name, *_sheet_lines(rows)]) for name, rows in sheets))
    blank = all(text == name for text, name in zip(texts, book.sheet_names, strict=True))
    return Extract(text="" if blank else mark_pages(texts), format="xlsx")


def _sheet_lines(rows: Iterable[list[Any]]) -> Iterator[str]:
    for row in rows:
        line = "\t".join(_sheet_cell(cell) for cell in row).rstrip("\t")
        if line:
            yield line


def _sheet_cell(cell: object) -> str:
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ")
    return str(cell).replace("\n", " ").replace("\t", " ")
