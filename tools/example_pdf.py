"""A PDF writer of one font and no pictures: enough for the example documents."""

from __future__ import annotations

import textwrap

PAGE = (595, 842)  # A4 in points
MARGIN = 64
STYLES = {  # size, line height, space before, characters a line
    "title": (18, 24, 0, 48),
    "heading": (13, 18, 10, 70),
    "text": (11, 15, 6, 88),
    "item": (11, 15, 4, 86),
}


def pdf_bytes(pages: list[list[tuple[str, str]]]) -> bytes:
    """A PDF file; each page is a list of (style, text), and must fit on its page."""
    first_page = 4
    kids = " ".join(f"{first_page + 2 * index} 0 R" for index in range(len(pages)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, lines in enumerate(pages):
        stream = _content(lines)
        box = f"[0 0 {PAGE[0]} {PAGE[1]}]"
        content = first_page + 2 * index + 1
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox {box} /Contents {content} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode(),
            b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream),
        ]
    return _file(objects)


def _content(lines: list[tuple[str, str]]) -> bytes:
    parts: list[bytes] = []
    y = PAGE[1] - MARGIN
    for style, text in lines:
        size, height, before, width = STYLES[style]
        y -= before
        for line in textwrap.wrap(f"\u2022 {text}" if style == "item" else text, width):
            y -= height
            parts.append(b"BT /F1 %d Tf %d %d Td (%s) Tj ET" % (size, MARGIN, y, _escape(line)))
    if y < MARGIN:
        raise ValueError("The text does not fit on its page.")
    return b"\n".join(parts)


def _escape(text: str) -> bytes:
    raw = text.encode("cp1252")
    return raw.replace(b"\\", b"\\\\").replace(b"(", b"\\(").replace(b")", b"\\)")


def _file(objects: list[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    for offset in offsets:
        out += b"%010d 00000 n \n" % offset
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\n" % (len(objects) + 1)
    out += b"startxref\n%d\n%%%%EOF\n" % start
    return bytes(out)
