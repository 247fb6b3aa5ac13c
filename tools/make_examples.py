"""Write examples/reviews.csv and examples/documents/ from tools/example_data/.

The files are committed; run this after changing the material: `just examples`.
"""

from __future__ import annotations

import csv
import tomllib
from datetime import date, datetime, timedelta
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any

import docx
import pptx
import xlsxwriter
from example_pdf import pdf_bytes

ROOT = Path(__file__).resolve().parent.parent
MATERIAL = ROOT / "tools" / "example_data"
MOODS = ("positive", "negative", "neutral")
REVIEWS_PER_MOOD = 9
FIRST_DAY = date(2026, 1, 3)
WRITTEN_AT = datetime(2026, 6, 1)  # noqa: DTZ001 - office files keep a local time without a zone
UNSPACED = {"zh", "ja"}

Block = tuple[str, Any]


def main() -> None:
    """Write every example file."""
    write_reviews(ROOT / "examples" / "reviews.csv")
    folder = ROOT / "examples" / "documents"
    folder.mkdir(exist_ok=True)
    for document in _load("documents.toml")["document"]:
        path = folder / document["file"]
        WRITERS[path.suffix](path, document["title"], blocks_of(document["body"]))
        print(path.relative_to(ROOT))


def write_reviews(path: Path) -> None:
    """Mix moods and languages so that neighbours differ, a few rows a day."""
    reviews = [
        review
        for number in range(REVIEWS_PER_MOOD)
        for mood in MOODS
        for review in _reviews_of(number, mood)
    ]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["id", "date", "place", "review"])
        for index, (place, text) in enumerate(reviews):
            day = FIRST_DAY + timedelta(days=index * 2 // 3)
            writer.writerow([f"R{index + 1:03}", day.isoformat(), place, text])
    print(path.relative_to(ROOT), len(reviews), "rows")


def _reviews_of(number: int, mood: str) -> list[tuple[str, str]]:
    return [
        (
            language["places"][(number + MOODS.index(mood)) % len(language["places"])],
            _review(language, number, mood),
        )
        for language in _load("reviews.toml")["language"]
    ]


def _review(language: dict[str, Any], number: int, mood: str) -> str:
    openings, details = language[mood], language[f"{mood}_details"]
    first = number % len(details)
    second = (first + 1 + number // len(details)) % len(details)
    sentences = [openings[number % len(openings)], details[first], details[second]]
    if number % len(MOODS) == len(MOODS) - 1:  # some people are brief
        sentences.pop()
    return ("" if language["code"] in UNSPACED else " ").join(sentences)


def blocks_of(body: str) -> list[Block]:
    """Headings, paragraphs, list items, page breaks, and tables of consecutive rows."""
    blocks: list[Block] = []
    lines = [line for line in body.splitlines() if line.strip()]
    for is_table, group in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in group]
            blocks.append(("table", rows))
        else:
            blocks += [_line(line) for line in group]
    return blocks


def _line(line: str) -> Block:
    if line == "---":
        return ("break", None)
    if line.startswith("## "):
        return ("heading", line[3:])
    return ("item", line[2:]) if line.startswith("- ") else ("text", line)


def write_text(path: Path, title: str, blocks: list[Block]) -> None:
    """Plain text, or Markdown where the name says so."""
    marks = {"heading": "## ", "item": "- "} if path.suffix == ".md" else {"item": "- "}
    lines = [f"# {title}" if path.suffix == ".md" else title.upper()]
    lines += [marks.get(kind, "") + value for kind, value in blocks]
    path.write_text("\n\n".join(lines) + "\n", encoding="utf-8")


def write_html(path: Path, title: str, blocks: list[Block]) -> None:
    """A page of its own, as a small company's system would send it."""
    tags = {"heading": "h2", "item": "li", "text": "p"}
    parts: list[str] = []
    for kind, value in blocks:
        if kind == "table":
            rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in value)
            parts.append("<table>" + "".join(f"<tr>{row}</tr>\n" for row in rows) + "</table>")
        else:
            parts.append(f"<{tags[kind]}>{escape(value)}</{tags[kind]}>")
    body = "\n".join(parts)
    head = f'<meta charset="utf-8">\n<title>{escape(title)}</title>'
    page = f"<!doctype html>\n<html>\n<head>\n{head}\n</head>\n<body>\n<h1>{escape(title)}</h1>\n"
    path.write_text(f"{page}{body}\n</body>\n</html>\n", encoding="utf-8")


def write_pdf(path: Path, title: str, blocks: list[Block]) -> None:
    """One page, or more where the material says so."""
    pages: list[list[tuple[str, str]]] = [[("title", title)]]
    for kind, value in blocks:
        if kind == "break":
            pages.append([])
        elif kind == "table":
            pages[-1] += [("text", "   ".join(row)) for row in value]
        else:
            pages[-1].append((kind, value))
    path.write_bytes(pdf_bytes(pages))


def write_docx(path: Path, title: str, blocks: list[Block]) -> None:
    """A Word document with real headings and tables."""
    document = docx.Document()
    document.core_properties.created = document.core_properties.modified = WRITTEN_AT
    document.add_heading(title, level=0)
    for kind, value in blocks:
        if kind == "heading":
            document.add_heading(value, level=1)
        elif kind == "table":
            table = document.add_table(rows=0, cols=len(value[0]))
            for row in value:
                for cell, text in zip(table.add_row().cells, row, strict=True):
                    cell.text = text
        else:
            document.add_paragraph(value, style="List Bullet" if kind == "item" else None)
    document.save(str(path))


def write_pptx(path: Path, title: str, blocks: list[Block]) -> None:
    """One slide a page, its heading as the slide's title."""
    deck = pptx.Presentation()
    deck.core_properties.created = deck.core_properties.modified = WRITTEN_AT
    slides = [list(g) for is_break, g in groupby(blocks, lambda b: b[0] == "break") if not is_break]
    for slide_blocks in slides:
        slide = deck.slides.add_slide(deck.slide_layouts[1])
        headings = [value for kind, value in slide_blocks if kind == "heading"]
        slide.shapes.title.text = headings[0] if headings else title
        lines = [value for kind, value in slide_blocks if kind in {"text", "item"}]
        for kind, value in slide_blocks:
            lines += [": ".join(row) for row in value] if kind == "table" else []
        slide.placeholders[1].text = "\n".join(lines)
    deck.save(str(path))


def write_xlsx(path: Path, title: str, blocks: list[Block]) -> None:
    """One sheet, numbers as numbers."""
    with xlsxwriter.Workbook(str(path)) as book:
        book.set_properties({"title": title, "created": WRITTEN_AT})
        sheet = book.add_worksheet(title)
        sheet.set_column(0, 0, 36)
        rows = [[title]]
        for kind, value in blocks:
            rows += value if kind == "table" else [[value]]
        for index, row in enumerate(rows):
            for column, cell in enumerate(row):
                sheet.write(index, column, _number(cell))


def _number(text: str) -> str | float:
    return float(text) if text.replace(".", "", 1).isdigit() else text


def _load(name: str) -> dict[str, Any]:
    return tomllib.loads((MATERIAL / name).read_text(encoding="utf-8"))


WRITERS = {
    ".txt": write_text,
    ".md": write_text,
    ".html": write_html,
    ".pdf": write_pdf,
    ".docx": write_docx,
    ".pptx": write_pptx,
    ".xlsx": write_xlsx,
}

if __name__ == "__main__":
    main()
