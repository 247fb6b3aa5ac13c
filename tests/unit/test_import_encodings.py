# ruff: noqa: RUF001 - texts of many scripts are what is tested

from __future__ import annotations

import codecs
from pathlib import Path

import pytest

from everfill.kernel.errors import InvalidError
from everfill.tables.imports.charsets import guess_charset
from everfill.tables.imports.csv_source import CsvSource
from everfill.tables.imports.encoding import detect_encoding

_CHINESE = "城市,人口\n北京,21893095\n上海,24870895\n"
_JAPANESE = "商品,値段\nコーヒー,350\nお茶,200\n"


def _file(folder: Path, content: bytes) -> Path:
    path = folder / "table.csv"
    path.write_bytes(content)
    return path


def _table(path: Path) -> list[list[object]]:
    source = CsvSource(path, on_bad_row="stop")
    names: list[object] = [column.name for column in source.columns]
    return [names, *(list(row.values) for batch in source.read(100) for row in batch)]


@pytest.mark.parametrize(
    ("text", "codec"),
    [
        ("姓名,评论\n王芳,这个产品很好用\n李雷,质量太差了，不推荐\n", "gb18030"),
        (_CHINESE, "gb18030"),
        ("编号,名称\n1,苹果\n", "gb18030"),
        (_JAPANESE, "cp932"),
        ("名前,年齢\n田中,32\n佐藤,41\n", "cp932"),
        ("都市,人口\n東京,14000000\n大阪,2700000\n", "cp932"),
        ("名前,年齢\n田中さん,32\n商品はとても良いです,1\n", "euc_jp"),
        ("이름,나이\n김철수,32\n", "cp949"),
        ("姓名,評論\n王芳,這個產品很好用\n", "big5"),
        ("имя;возраст\nИван;32\n", "cp1251"),
        ("όνομα;ηλικία\nΓιώργος;32\n", "cp1253"),
        ("imię;wiek\nŁukasz;3\nŻółw;4\n", "cp1250"),
        ("société;ville\nAéroports;Orléans\nCrédit;Nîmes\n", "cp1252"),
        ("Straße;Größe\nMüllerstraße;5\n", "cp1252"),
        ("name;by\nÅse;Tromsø\nØrjan;Ålesund\n", "cp1252"),
        ("name,price\nit’s,€5\n", "cp1252"),
    ],
)
def test_a_few_words_tell_the_encoding(text: str, codec: str) -> None:
    guessed, label = guess_charset(text.encode(codec))
    assert text.encode(codec).decode(guessed) == text
    assert label


@pytest.mark.parametrize("codec", ["gb18030", "cp932", "cp1252", "cp1251", "cp949", "big5"])
def test_a_long_text_tells_the_encoding(codec: str) -> None:
    text = {
        "gb18030": "数据分析与人工智能技术在企业管理中的应用越来越广泛\n",
        "cp932": "日本の首都は東京です。データ分析とカタカナの混在\n",
        "cp1252": "Les élèves français étaient très fiers; l'été à Nîmes\n",
        "cp1251": "Съешь ещё этих мягких французских булок, да выпей чаю\n",
        "cp949": "우리 회사에서 생산한 제품의 품질은 매우 좋습니다\n",
        "big5": "這個產品的質量非常好，我們公司生產的東西受到大家歡迎\n",
    }[codec] * 200
    assert text.encode(codec).decode(guess_charset(text.encode(codec))[0]) == text


@pytest.mark.parametrize(
    ("mark", "codec"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (b"", "utf-8"),
        (b"", "utf-16-le"),
        (b"", "utf-16-be"),
        (b"", "gb18030"),
    ],
)
def test_the_same_table_comes_out_of_any_encoding(tmp_path: Path, mark: bytes, codec: str) -> None:
    expected = [["城市", "人口"], ["北京", 21_893_095], ["上海", 24_870_895]]
    assert _table(_file(tmp_path, mark + _CHINESE.encode(codec))) == expected


def test_shift_jis_and_windows_1252_come_out_right(tmp_path: Path) -> None:
    assert _table(_file(tmp_path, _JAPANESE.encode("cp932")))[1] == ["コーヒー", 350]
    assert _table(_file(tmp_path, b"a;b\n\x93caf\xe9\x94;\x805\n"))[1] == ["“café”", 5]


def test_ascii_is_utf8_and_nul_characters_do_not_make_it_utf16(tmp_path: Path) -> None:
    assert detect_encoding(_file(tmp_path, b"a,b\n1,2\n")).codec == "utf-8"
    assert _table(_file(tmp_path, b"a,b\nx\x00y,2\n"))[1] == ["x\x00y", 2]


def test_a_first_accent_far_into_the_file_still_decides(tmp_path: Path) -> None:
    plain = "id;name\n" + "1;plain\n" * 300_000
    rows = _table(_file(tmp_path, (plain + "2;Müller\n").encode("cp1252")))
    assert rows[-1] == [2, "Müller"]


def test_a_bad_byte_in_utf8_is_reported_by_its_line_and_garbles_nothing(tmp_path: Path) -> None:
    content = "a,b\n1,é\n2,ü\n3,x\n4,日本\n".encode().replace(b"3,x", b"3,\xff")
    path = _file(tmp_path, content)
    with pytest.raises(InvalidError, match="line 4"):
        CsvSource(path, on_bad_row="stop")
    source = CsvSource(path, on_bad_row="skip")
    rows = [list(row.values) for batch in source.read(9) for row in batch]
    assert rows == [[1, "é"], [2, "ü"], [4, "日本"]]
    assert [(bad.line, bad.reason) for bad in source.bad_rows] == [
        (4, "bytes that are no text in the file's encoding")
    ]


def test_a_character_cut_by_the_end_of_the_file_is_reported(tmp_path: Path) -> None:
    path = _file(tmp_path, "a,b\n1,é\n2,ü\n3,日".encode()[:-1])
    with pytest.raises(InvalidError, match="line 4"):
        CsvSource(path, on_bad_row="stop")


def test_a_guessed_encoding_is_told(tmp_path: Path) -> None:
    source = CsvSource(_file(tmp_path, _CHINESE.encode("gb18030")), on_bad_row="stop")
    assert "The file is taken for GB18030 (Chinese)." in source.notes


@pytest.mark.parametrize("row", ["0,\0", "\0,\0", "tea\0,é", ",\x1f\0", "\x01\x02,\0"])
def test_a_stray_nul_does_not_make_a_file_utf_16(tmp_path: Path, row: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"a,b\n{row}\nplain,words\n", encoding="utf-8")

    assert detect_encoding(path).codec == "utf-8"


@pytest.mark.parametrize(
    "text",
    [
        "a,b\nplain,words\n",
        "имя,город\nАнна,Москва 7 км\n",
        "όνομα,πόλη\nΆννα,Αθήνα\n",
        "名前,都市\n花子,東京\n",
    ],
)
@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_still_known(tmp_path: Path, text: str, codec: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(codec))

    assert detect_encoding(path).codec == codec
