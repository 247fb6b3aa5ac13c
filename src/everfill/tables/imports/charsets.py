"""Which legacy encoding some bytes are in, judged by what they would say, even if they are few.

Each candidate that decodes the bytes is scored by its characters beyond ASCII: everyday ones of its
language, in runs that its language has, count for it; rare ideographs, half-width kana, symbols
amid letters and mixed scripts count against it. Statistical detection (charset-normalizer) decides
between the single-byte code pages that this does not know, once there is enough text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

from charset_normalizer import from_bytes

__all__ = ["guess_charset"]

_LABELS: Final[Mapping[str, str]] = {
    "cp1252": "Windows-1252 (Western European)",
    "gb18030": "GB18030 (Chinese)",
    "cp932": "Shift-JIS (Japanese)",
    "euc_jp": "EUC-JP (Japanese)",
    "cp949": "EUC-KR (Korean)",
    "big5": "Big5 (Chinese)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8_r": "KOI8-R (Cyrillic)",
    "cp1250": "Windows-1250 (Central European)",
    "cp1253": "Windows-1253 (Greek)",
    "cp1254": "Windows-1254 (Turkish)",
    "cp1255": "Windows-1255 (Hebrew)",
    "cp1256": "Windows-1256 (Arabic)",
}
_OTHERS: Final = ("cp1257", "cp1258", "cp874", "cp850", "cp437", "mac_roman", "cp866")
_SCORED_CHARS: Final = 4_000
_STATISTICS_MIN: Final = 100
_SURE: Final = 0.6
_CLOSE: Final = 0.07

_WESTERN: Final = frozenset("àâäáãåæçéèêëíìîïñóòôöõøœúùûüýÿßÀÂÄÁÅÆÇÉÈÊËÍÎÏÑÓÔÖÕØŒÚÙÛÜŠšŽž")
_CENTRAL: Final = frozenset("ąćęłńóśźżĄĆĘŁŃÓŚŹŻáčďéěíňóřšťúůýžÁČĎÉĚÍŇÓŘŠŤÚŮÝŽőűŐŰöüÖÜäÄăâîșțşţßđĐ")
_TURKISH: Final = frozenset("çğıöşüÇĞİÖŞÜâî")
_SYLLABLES: Final = frozenset(
    "가각간감강개거건것게겠격결경계고공과관구국군권그극근금급기길김까나난날남내너네녀년노는니님다단달당대더던데도"
    "독동되된두드든들등디따때라락란람량러런레려력련령로록론료루류르른를름리린림마만말망매면명모목무문물미민바박반"
    "발방배백버번법변별병보복본부북분불비사산살상새생서석선설성세소속손송수순술스습승시식신실심십아악안알암앙애야"
    "약양어억언업없에여역연열영예오온올옥와완왕외요용우운울원월위유육윤은을음의이인일임입있자작잔장재저적전절점정"
    "제조족존종좌주준중즉증지직진질집차찬참창처천철첫청체초촌총최추축출충치크타태터테토통투트특티파판편평포표품풍"
    "프피필하학한할함합항해핵행향허헌현협형호화환활황회획효후훈휘희히"
)
_TYPOGRAPHY: Final = frozenset("“”\u2018\u2019\u2013—…€£°«»§©®™•¿¡„\u201a·½²³ªº\u00a0")
_KANA: Final = range(0x3040, 0x3100)
_HANGUL: Final = range(0xAC00, 0xD7A4)
_IDEOGRAPHS: Final = range(0x4E00, 0xA000)
_PUNCTUATION: Final = range(0x3000, 0x3016)
_FULL_WIDTH: Final = range(0xFF01, 0xFF5F)
_RUN: Final = re.compile(r"[^\x00-\x7f]+")


def guess_charset(sample: bytes) -> tuple[str, str]:
    """The codec of some bytes that are not UTF-8, and its name for people.

    Windows-1252 is the answer where nothing speaks for any other; it is what most such files are.
    """
    scores = {codec: _score(sample, codec) for codec in _LABELS}
    best = max(scores, key=lambda codec: scores[codec])
    close = [codec for codec, score in scores.items() if score > scores[best] - _CLOSE]
    unsure = scores[best] < _SURE or len(close) > 1
    if unsure and len(_beyond_ascii(sample)) >= _STATISTICS_MIN:
        known = close if scores[best] >= _SURE else [*_LABELS, *_OTHERS]
        found = from_bytes(sample, cp_isolation=known).best()
        if found is not None:
            best = found.encoding
    return best, _LABELS.get(best, best)


def _beyond_ascii(sample: bytes) -> bytes:
    return sample.translate(None, bytes(range(128)))


def _score(sample: bytes, codec: str) -> float:
    """The mean plausibility, about 0 to 1, of the characters beyond ASCII; -1 where undecodable."""
    text = _decoded(sample, codec)
    if text is None:
        return -1.0
    judge = _JUDGES[codec]
    total, count = 0.0, 0
    for run in _RUN.finditer(text):
        before = text[run.start() - 1 : run.start()] if run.start() else ""
        total += judge(run[0], before, text[run.end() : run.end() + 1])
        count += len(run[0])
        if count > _SCORED_CHARS:
            break
    return total / count + _PRIORS.get(codec, 0.0) if count else -1.0


def _decoded(sample: bytes, codec: str) -> str | None:
    for cut in range(4):  # the sample may end amid a character
        try:
            return sample[: len(sample) - cut].decode(codec)
        except UnicodeDecodeError as error:
            if error.start < len(sample) - 4:
                return None
    return None


def _ideographs(run: str, before: str, after: str, *, codec: str, lead_max: int) -> float:
    """Judge a run of East Asian characters: everyday ones come first in the older standards."""
    total = 0.0
    for char in run:
        code = ord(char)
        if code in _KANA:
            total += 1.0 if codec in _JAPANESE else 0.0
        elif code in _HANGUL:
            total += (1.0 if char in _SYLLABLES else 0.2) if codec == "cp949" else -1.0
        elif code in _IDEOGRAPHS:
            total += _ideograph(char, codec, lead_max)
        elif code in _WIDE_MARKS or code in _PUNCTUATION or code in _FULL_WIDTH:
            total += 0.7
        else:
            total -= 1.0  # half-width kana, symbols, letters of other scripts, private use
    glued = (before.isalpha() and before.islower()) + (after.isalpha() and after.islower())
    return total - glued * (1.5 if len(run) == 1 else 0.5)


def _ideograph(char: str, codec: str, lead_max: int) -> float:
    if codec == "cp949":
        return -0.5  # modern Korean is written without them
    try:
        lead = char.encode(_CORE[codec])[0]
    except UnicodeEncodeError:
        return -0.5
    return 0.95 if lead <= lead_max else 0.1


def _letters(run: str, before: str, after: str, *, known: frozenset[str], run_max: int) -> float:
    """Judge accented letters: one or two between ASCII ones, not whole words of them."""
    total = 0.0
    for place, char in enumerate(run):
        left = run[place - 1] if place else before
        right = run[place + 1] if place + 1 < len(run) else after
        if char in _TYPOGRAPHY:
            total += 0.7
        elif char not in known:
            total -= 0.8
        elif char.isupper() and left.isalpha() and left.islower():
            total -= 0.5  # a capital amid a word
        elif left.isascii() and right.isascii() and (left.isalpha() or right.isalpha()):
            total += 0.9
        else:
            total += 0.5
    letters = sum(char.isalpha() for char in run)
    return total - max(0, letters - run_max)


def _script(run: str, before: str, after: str, *, script: str) -> float:
    """Judge words in a script of their own: long runs of lower case, not glued to ASCII letters."""
    total = 0.0
    for place, char in enumerate(run):
        if char in _TYPOGRAPHY:
            total += 0.6
        elif not unicodedata.name(char, "").startswith(script):
            total -= 1.0
        elif char.isupper() and place and run[place - 1].islower():
            total -= 0.7
        else:
            total += 0.9
    glued = before.isalpha() + after.isalpha()
    return total - glued - (0.6 if len(run) == 1 else 0.0)


_JAPANESE: Final = frozenset({"cp932", "euc_jp"})
_WIDE_MARKS: Final = frozenset(map(ord, "·\u2018\u2019“”—…《》￥"))
_CORE: Final[Mapping[str, str]] = {
    "gb18030": "gb2312",
    "cp932": "shift_jis",
    "euc_jp": "euc_jp",
    "big5": "big5",
    "cp949": "euc_kr",
}
_PRIORS: Final[Mapping[str, float]] = {"cp1252": 0.05, "gb18030": 0.02, "cp932": 0.03}


def _asian(codec: str, lead_max: int) -> Callable[[str, str, str], float]:
    return lambda run, before, after: _ideographs(
        run, before, after, codec=codec, lead_max=lead_max
    )


def _latin(known: frozenset[str]) -> Callable[[str, str, str], float]:
    return lambda run, before, after: _letters(run, before, after, known=known, run_max=2)


def _own(script: str) -> Callable[[str, str, str], float]:
    return lambda run, before, after: _script(run, before, after, script=script)


_JUDGES: Final[Mapping[str, Callable[[str, str, str], float]]] = {
    "cp1252": _latin(_WESTERN),
    "cp1250": _latin(_CENTRAL),
    "cp1254": _latin(_TURKISH),
    "gb18030": _asian("gb18030", 0xD7),
    "big5": _asian("big5", 0xC6),
    "cp932": _asian("cp932", 0x97),
    "euc_jp": _asian("euc_jp", 0xCF),
    "cp949": _asian("cp949", 0xFF),
    "cp1251": _own("CYRILLIC"),
    "koi8_r": _own("CYRILLIC"),
    "cp1253": _own("GREEK"),
    "cp1255": _own("HEBREW"),
    "cp1256": _own("ARABIC"),
}
