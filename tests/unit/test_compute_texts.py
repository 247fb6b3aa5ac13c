"""Sentences, phrases, pages, charsets and excerpts: the pure parts of the local functions."""
# ruff: noqa: RUF001 - other scripts' marks are meant

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everfill.compute.charset import decode_text
from everfill.compute.embedding import excerpt
from everfill.compute.pages import mark_pages, split_pages
from everfill.compute.phrases import candidate_phrases
from everfill.compute.sentences import is_whole, split_sentences, split_words


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Lind met J. Smith at 3.15 p.m. sharp. Then she left.", None),
        ('She said "no." He left.', ['She said "no."', "He left."]),
        ("第一句。第二句！第三句", ["第一句。", "第二句！", "第三句"]),
        ("「はい。」彼は言った。", ["「はい。」", "彼は言った。"]),
        ("A title\n\nA line\nwrapped.", ["A title", "A line wrapped."]),
        ("यह पहला वाक्य है। यह दूसरा है।", ["यह पहला वाक्य है।", "यह दूसरा है।"]),
        ("No end mark", ["No end mark"]),
        (" \n ", []),
        ("Es beginnt am 1. April 2026. Danach nicht.", None),
        ("Die Miete ist bis zum 3. Werktag zu zahlen. Sie steigt.", None),
        ("Im 19. Jahrhundert. Ende.", ["Im 19. Jahrhundert.", "Ende."]),
        ("Vom 1. 4. 2026 an gilt es. Ja.", ["Vom 1. 4. 2026 an gilt es.", "Ja."]),
        ("Nächste Sitzung: 8. Mai. Bis dann.", ["Nächste Sitzung: 8. Mai.", "Bis dann."]),
        ("We were 12. They left.", ["We were 12.", "They left."]),
        ("Их было 12. Они ушли.", ["Их было 12.", "Они ушли."]),
        ("It was in 1984. They left.", ["It was in 1984.", "They left."]),
        ("# Minutes\n\n## 2. Budget\nIt was agreed.", ["Minutes", "2. Budget", "It was agreed."]),
        ("[page 1]\nFirst here.\n\f[page 2]\nThen there.", ["First here.", "Then there."]),
        ("- One thing\n- Another thing.", ["One thing", "Another thing."]),
        ("Late - as ever - he came.", ["Late - as ever - he came."]),
        (
            "Sum it up.\n| 4 Std. | 70,00 |\n| 2 | 80,00 |",
            ["Sum it up.", "| 4 Std. | 70,00 |", "| 2 | 80,00 |"],
        ),
        (
            "§ 2 Mietzeit\nDas Mietverhältnis läuft auf unbestimmte\nZeit weiter.",
            ["§ 2 Mietzeit", "Das Mietverhältnis läuft auf unbestimmte Zeit weiter."],
        ),
    ],
)
def test_sentences_are_cut_in_any_script(text: str, sentences: list[str] | None) -> None:
    found = split_sentences(text)

    if sentences is None:
        assert len(found) == 2
        assert " ".join(found) == text
    else:
        assert found == sentences


@given(st.text(st.characters(exclude_characters="["), max_size=300))
def test_no_letter_is_lost_between_sentences(text: str) -> None:
    found = "".join(split_sentences(text))

    assert [char for char in found if char.isalnum()] == [char for char in text if char.isalnum()]


def test_titles_labels_and_rows_are_no_whole_sentences() -> None:
    assert is_whole("It was agreed.")
    assert is_whole('She said "no."')
    assert is_whole("第一句。")
    assert not is_whole("Minutes of the Board Meeting")
    assert not is_whole("| 4 | 70,00 |")


def test_words_keep_apostrophes_hyphens_and_decimals() -> None:
    assert split_words("Don't re-use 3.5 kg, größer!") == ["Don't", "re-use", "3.5", "kg", "größer"]


def test_candidate_phrases_leave_out_function_words_and_put_frequent_ones_first() -> None:
    text = "The solar panel is on the roof. A solar panel needs sun. The roof is old."

    phrases = candidate_phrases(text, 10)

    assert phrases[0].casefold() == "solar panel"
    assert "the" not in {word for phrase in phrases for word in phrase.casefold().split()[:1]}
    assert len(phrases) <= 10


def test_candidate_phrases_are_found_in_chinese_and_japanese() -> None:
    assert "电池续航时间" in candidate_phrases("这款手机的电池续航时间很长。", 10)
    assert "図書館" in candidate_phrases("新しい図書館が開館した。", 10)


@given(st.text(max_size=200), st.integers(1, 20))
def test_candidate_phrases_stand_in_the_text_and_keep_their_bound(text: str, count: int) -> None:
    phrases = candidate_phrases(text, count)

    assert len(phrases) <= count
    assert all(word in text for phrase in phrases for word in phrase.split())


@given(
    st.lists(st.text(st.characters(exclude_characters="\f", exclude_categories=["Cs"])), min_size=1)
)
def test_marked_pages_are_split_as_they_were(texts: list[str]) -> None:
    kept = [(number, text.strip()) for number, text in enumerate(texts, start=1)]

    assert split_pages(mark_pages(texts)) == kept


def test_a_text_without_marks_is_page_one() -> None:
    assert split_pages("Just text with [page 3]\nin it") == [(1, "Just text with [page 3]\nin it")]


def test_a_mark_inside_a_page_is_no_page() -> None:
    assert split_pages(mark_pages(["a\n[page 9]\nb", "c"])) == [(1, "a\n[page 9]\nb"), (2, "c")]


@pytest.mark.parametrize(
    ("data", "declared", "text"),
    [
        ("é".encode(), None, "é"),
        ("é".encode("latin-1"), "ISO-8859-1", "é"),
        ("“é”".encode("cp1252"), "latin1", "“é”"),
        ("é".encode(), "ascii", "é"),
        (b"\xef\xbb\xbf" + "é".encode(), "latin-1", "é"),
        ("é".encode("utf-16"), None, "é"),
        ("é".encode("utf-32"), None, "é"),
        ("镕".encode("gb18030"), "gb2312", "镕"),
        ("①".encode("cp932"), "Shift_JIS", "①"),
        (b"x", "hex", "x"),
        (b"", None, ""),
    ],
)
def test_bytes_are_read_as_their_writer_meant(data: bytes, declared: str | None, text: str) -> None:
    assert decode_text(data, declared) == text


def test_a_page_may_declare_its_charset_inside() -> None:
    page = '<html><head><meta http-equiv="x" content="text/html; charset=windows-1251">Привет'

    assert decode_text(page.encode("cp1251"), html=True).endswith("Привет")


@given(st.binary(max_size=200))
def test_no_bytes_are_too_strange_to_decode(data: bytes) -> None:
    assert isinstance(decode_text(data, html=True), str)


@given(st.text(max_size=500), st.integers(8, 100))
def test_an_excerpt_is_short_and_begins_and_ends_as_the_text(text: str, most: int) -> None:
    short = excerpt(text, most)

    if len(text) <= most:
        assert short == text
    else:
        assert len(short) <= most + 3
        assert short[0] == text[0]
        assert short[-1] == text[-1]
