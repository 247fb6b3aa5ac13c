# ruff: noqa: RUF001 - other scripts' letters and marks are meant
"""Phrases that could be keywords of a text, by frequency and form, whatever the script.

Where words have spaces between them, a candidate is up to three words in a row that no mark
separates and that neither begins nor ends with a function word. Chinese and Japanese are cut where
the script changes and at grammatical characters.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Final

__all__ = ["candidate_phrases"]

_WORDS_MAX: Final = 3
_WORD_CHARS_MIN: Final = 3
_IDEOGRAPHS_MIN: Final = 2
_IDEOGRAPHS_MAX: Final = 6
_SPACED: Final = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*\d*|\n|[^\w\s'’\-]")
_IDEOGRAPHIC: Final = re.compile(r"[\u4e00-\u9fff\u3400-\u4dbf々]+|[\u30a0-\u30ff]{2,}")
_GRAMMAR: Final = re.compile("[的了是在和与与及或也都就不我你他她它们这那有被把对从到为很最非常]")
_FUNCTION_WORDS_TEXT: Final = """
a about after all also am an and any are as at be because been before being but by can could did
do does doing done during each every few for from get got had has have he her here him his how i if
in into is it its it's just made make many me more most much my no nor not of off on once one only
or other our out over own same she should so some such than that the their them then there these
they this those through to too under until up us very was we were what when where which while who
why will with would you your i'm don't doesn't
aber als also am an auch auf aus bei bin bis das dass dem den der des die doch du durch ein eine
einem einen einer es für hat hatte haben ich ihr im in ist ja kann kein keine man mein mich mir mit
nach nicht noch nur oder ohne schon sehr sein seine sich sie sind so über um und uns unser vom von
vor war waren was wegen wenn wer werden wie wir wird wurde zu zum zur
au aux avec c'est ce ces cette comme dans de des du elle elles en est et eux il ils je la le les
leur lui ma mais mes même moi mon ne nos notre nous on ont ou où par pas plus pour qu que qui sa se
ses si son sont sur ta te tes tout très tu un une vos votre vous était été être
al algo como con cuando de del desde donde el ella ellos en entre era es esta este esto fue ha han
hasta la las lo los más me mi muy nada ni nos o para pero por porque que se ser si sin sobre son su
sus también te tiene todo un una uno y ya yo
alla anche che chi ci con da dal dalla degli dei del della delle di e gli ho i il io la le lo ma mi
nel nella non per più quando questa questo se si sono sua suo tra un uno è
ao aos com da das do dos e ela ele em eu foi isso mais mas na nas no nos não o os ou para pela pelo
por que se seu sua são também um uma à é
aan dat de deze die dit door een en er had heb het hij hoe ik je kan maar met mijn naar niet nog of
om ook op over te tot uit van voor was wat we wel werd wij worden ze zich zijn zo
и в во на с со не что как а но по к ко у из за от до о об же бы то это этот эта эти его ее её их мы
вы он она они я ты был была было были для при так
i w we na z ze do nie że jak a ale po od za o to jest się był była było dla przy
ve bir bu da de için ile ne çok o mi
"""
_FUNCTION_WORDS: Final = frozenset(_FUNCTION_WORDS_TEXT.split())


def candidate_phrases(text: str, count: int) -> list[str]:
    """At most `count` phrases as the text writes them, those that occur most first."""
    counts: Counter[str] = Counter()
    written: dict[str, str] = {}
    for phrase in [*_spaced_phrases(text), *_ideographic_phrases(text)]:
        key = phrase.casefold()
        counts[key] += 1
        written.setdefault(key, phrase)
    place = {key: index for index, key in enumerate(written)}
    ranked = sorted(counts, key=lambda key: (-_weight(key, counts[key]), place[key]))
    return [written[key] for key in ranked[:count]]


def _weight(key: str, count: int) -> float:
    """Repeated phrases first, longer ones before their parts where they occur as often."""
    return count * (1 + 0.4 * (len(key.split()) - 1)) * min(len(key), 8) ** 0.5


def _spaced_phrases(text: str) -> list[str]:
    phrases: list[str] = []
    run: list[str] = []
    for token in [*_SPACED.findall(_IDEOGRAPHIC.sub(" . ", text)), "."]:
        if token[0].isalpha():
            run.append(token)
            continue
        phrases += _grams(run)
        run = []
    return phrases


def _grams(run: list[str]) -> list[str]:
    """Every one to three words in a row that begin and end with a word of content."""
    content = [len(word) > 1 and word.casefold() not in _FUNCTION_WORDS for word in run]
    return [
        " ".join(run[start:end])
        for start in range(len(run))
        for end in range(start + 1, min(start + _WORDS_MAX, len(run)) + 1)
        if content[start]
        and content[end - 1]
        and (end - start > 1 or len(run[start]) >= _WORD_CHARS_MIN)
    ]


def _ideographic_phrases(text: str) -> list[str]:
    phrases: list[str] = []
    for run in _IDEOGRAPHIC.findall(text):
        for piece in _GRAMMAR.split(run):
            if _IDEOGRAPHS_MIN <= len(piece) <= _IDEOGRAPHS_MAX:
                phrases.append(piece)
            elif len(piece) > _IDEOGRAPHS_MAX:
                phrases += [piece[i : i + 4] for i in range(0, len(piece) - 1, 4)]
    return [phrase for phrase in phrases if len(phrase) > 1]
