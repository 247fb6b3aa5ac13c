"""The local functions, with their real models: no key, no network."""
# ruff: noqa: RUF001 - other scripts' marks are meant

from __future__ import annotations

import asyncio
import math

import pytest

from everfill.compute.protocol import (
    ComputeContext,
    ComputeRequest,
    ComputeResult,
    CostClass,
    NotFound,
    Value,
)
from everfill.compute.registry import get_kind
from everfill.compute.sentences import split_sentences
from everfill.kernel.config import Settings
from everfill.tables.types import TEXT, ColumnType, TypeName

CONTEXT = ComputeContext(settings=Settings(), files=None)
LOCAL = ["classify", "embed", "keywords", "language", "sentiment", "summary"]
TOPICS = ("billing", "delivery", "technical problem", "praise", "account")
STORY = (
    "The city council approved a new cycling network on Monday evening. The cycling network will "
    "connect the harbour with the university and cost four million euros. Mayor Dr. Anna Lind said "
    "that safer streets matter more than parking spaces. Shop owners fear that customers will stay "
    "away. Construction begins in April and should take two years."
)
SENTIMENTS = [
    ("positive", "Absolutely fantastic headphones, the sound is amazing."),
    ("positive", "Our guide was charming and the tour unforgettable."),
    ("positive", "Setup took two minutes and everything just works."),
    (
        "positive",
        "The new teacher explains things clearly, my son loves her lessons.",
    ),
    ("positive", "Good."),
    ("positive", "Das Essen war köstlich und der Kellner sehr nett."),
    ("positive", "Super schnelle Lieferung, gerne wieder!"),
    ("positive", "Très bon restaurant, on s'est régalés."),
    ("positive", "Estoy muy contento con el resultado."),
    ("positive", "Camera spaziosa e colazione eccellente."),
    ("positive", "Recomendo muito, entrega rápida."),
    ("positive", "Прекрасный отель, вежливый персонал."),
    ("positive", "这家餐厅的菜很好吃，服务也很周到。"),
    ("positive", "スタッフが親切で、また行きたいです。"),
    ("negative", "The battery dies within an hour, useless."),
    ("negative", "Our flight was cancelled and nobody told us why."),
    ("negative", "Setup took all day and it still crashes."),
    ("negative", "The lecturer mumbles and I learned nothing."),
    ("negative", "Bad."),
    ("negative", "Das Essen war kalt und der Kellner unhöflich."),
    ("negative", "Lieferung drei Wochen zu spät, nie wieder!"),
    ("negative", "Restaurant bruyant, plats sans goût, à éviter."),
    ("negative", "El paquete llegó roto y no me devuelven el dinero."),
    ("negative", "Camera sporca e colazione scadente."),
    ("negative", "Não recomendo, o produto veio com defeito."),
    ("negative", "Номер грязный, персонал грубый."),
    ("negative", "这家餐厅又贵又难吃。"),
    ("negative", "対応が悪く、二度と利用しません。"),
    ("neutral", "The train leaves from platform six."),
    ("neutral", "The battery has a capacity of 3,000 mAh."),
    ("neutral", "She works as an accountant in Leeds."),
    ("neutral", "How do I reset my password?"),
    ("neutral", "The contract runs until the end of June."),
    ("neutral", "Das Museum liegt am Fluss."),
    ("neutral", "Die Lieferung besteht aus drei Teilen."),
    ("neutral", "Le train part à huit heures."),
    ("neutral", "El contrato termina en junio."),
    ("neutral", "La camera si trova al secondo piano."),
    ("neutral", "O relatório tem trinta páginas."),
    ("neutral", "Поезд отправляется в восемь часов."),
    ("neutral", "火车八点出发。"),
    ("neutral", "電車は八時に出発します。"),
]


async def fill(
    kind: str, texts: list[str], output_type: ColumnType | None = None, **options: object
) -> list[ComputeResult]:
    made = get_kind(f"local:{kind}")
    wanted = output_type or made.spec.default_type
    requests = [
        ComputeRequest(text=text, inputs={}, source=text, output_type=wanted, options=options)
        for text in texts
    ]
    return list(await made.compute(requests, CONTEXT))


async def value(kind: str, text: str, output_type: ColumnType | None = None, **options: object):  # noqa: ANN201 - any JSON value
    (result,) = await fill(kind, [text], output_type, **options)
    assert isinstance(result, Value), result
    return result.value


@pytest.mark.parametrize("kind", LOCAL)
async def test_a_blank_text_has_no_answer_and_the_others_keep_their_places(kind: str) -> None:
    labels = ColumnType(name=TypeName.CHOICE, choices=TOPICS) if kind == "classify" else None

    blank, full, space = await fill(kind, ["", "The parcel came late.", " \n"], labels)

    assert blank == space == NotFound(reason="no text")
    assert isinstance(full, Value)
    assert get_kind(f"local:{kind}").spec.cost_class is CostClass.LOCAL


@pytest.mark.parametrize("kind", ["embed", "keywords", "language", "sentiment", "summary"])
async def test_strange_characters_are_no_fault(kind: str) -> None:
    results = await fill(kind, ["\x00 words \ud800 here", "🙂", "a" * 3_000])

    assert all(isinstance(result, Value | NotFound) for result in results)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("The weather is nice today and we are going to the park.", "en"),
        ("Das Wetter ist heute schön und wir gehen in den Park.", "de"),
        ("Il fait beau aujourd'hui et nous allons au parc.", "fr"),
        ("Hoy hace buen tiempo y vamos al parque.", "es"),
        ("Сегодня хорошая погода, и мы идём в парк.", "ru"),
        ("今天天气很好，我们去公园。", "zh"),
        ("今日は天気がいいので公園に行きます。", "ja"),
        ("오늘은 날씨가 좋아서 공원에 갑니다.", "ko"),
        ("الطقس جميل اليوم وسنذهب إلى الحديقة.", "ar"),
        ("आज मौसम अच्छा है और हम पार्क जा रहे हैं।", "hi"),
    ],
)
async def test_the_language_of_a_text_is_told(text: str, code: str) -> None:
    assert await value("language", text) == code


async def test_a_text_without_words_has_no_language() -> None:
    results = await fill("language", ["12345", "!!!", "🙂🙂"])

    assert all(isinstance(result, NotFound) for result in results)


async def test_languages_may_be_narrowed_to_a_list() -> None:
    among = ColumnType(name=TypeName.CHOICE, choices=("en", "nl"))

    assert await value("language", "Danke", languages="de,en") == "de"
    assert await value("language", "Das Wetter ist heute schön.", among) in {"en", "nl"}


async def test_sentiment_is_right_for_sentences_that_it_was_not_made_from() -> None:
    results: list[ComputeResult] = []
    for start in range(0, len(SENTIMENTS), 32):
        results += await fill("sentiment", [text for _, text in SENTIMENTS[start : start + 32]])

    wrong = [
        (text, result)
        for (label, text), result in zip(SENTIMENTS, results, strict=True)
        if result != Value(value=label)
    ]
    assert len(wrong) <= len(SENTIMENTS) // 10, wrong


async def test_a_column_may_write_the_sentiments_its_own_way() -> None:
    labels = ColumnType(name=TypeName.CHOICE, choices=("NEGATIVE", "Neutral", "Positive"))

    assert await value("sentiment", "I hate it, it is awful.", labels) == "NEGATIVE"
    assert await value("sentiment", "I love it, it is great.", TEXT) == "positive"


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("I was charged twice for the same invoice.", "billing"),
        ("Where is my parcel? It was due on Monday.", "delivery"),
        ("Das Paket ist noch nicht da.", "delivery"),
        ("The app crashes when I open settings.", "technical problem"),
        ("You guys are great, thanks!", "praise"),
        ("Please change the email address of my account.", "account"),
    ],
)
async def test_a_text_gets_the_label_that_it_is_about(text: str, topic: str) -> None:
    labels = ColumnType(name=TypeName.CHOICE, choices=TOPICS)

    assert await value("classify", text, labels) == topic


async def test_a_text_may_get_several_labels_in_the_columns_order() -> None:
    labels = ColumnType(name=TypeName.CHOICES, choices=("sports", "politics", "transport"))

    strict = await value("classify", STORY, labels, threshold=1)
    loose = await value("classify", STORY, labels, threshold=0)

    assert strict == ["transport"]
    assert loose == ["sports", "politics", "transport"]


async def test_keywords_are_phrases_of_the_text() -> None:
    words = await value("keywords", STORY, count=3)
    joined = await value("keywords", STORY, TEXT, count=3)

    assert "cycling network" in words[0]
    assert len(words) == 3
    assert all(phrase in STORY for phrase in words)
    assert joined == ", ".join(words)


async def test_a_summary_is_whole_sentences_in_their_order() -> None:
    summary = await value("summary", STORY, sentences=2)
    places = [STORY.index(sentence) for sentence in split_sentences(summary)]

    assert len(places) == 2
    assert places == sorted(places)
    assert "cycling network" in summary
    assert await value("summary", "Just one sentence.") == "Just one sentence."


async def test_a_chinese_text_is_summarised_without_spaces() -> None:
    text = "这款手机的电池续航时间很长。相机在夜间拍照时噪点较多。总体来说，我推荐购买这款手机。"

    summary = await value("summary", text, sentences=2)

    assert summary.count("。") == 2
    assert " " not in summary


async def test_a_long_text_is_summarised_from_its_richest_sentences() -> None:
    text = " ".join(f"Filler number {number} says little." for number in range(300))

    summary = await value("summary", f"{text} {STORY}", sentences=1)

    assert summary.endswith(".")
    assert len(summary) < 200


async def test_near_texts_have_near_vectors_of_length_one() -> None:
    first, near, far = [
        result.value
        for result in await fill(
            "embed", ["The dog sleeps.", "Der Hund schläft.", "Interest rates rose in May."]
        )
        if isinstance(result, Value)
    ]

    assert len(first) == 384
    assert math.isclose(math.hypot(*first), 1, abs_tol=1e-5)
    assert dot(first, near) > dot(first, far) + 0.05


async def test_calls_at_the_same_time_give_the_same_values_as_one_after_another() -> None:
    texts = [f"Sentence number {number} about the harbour." for number in range(6)]
    alone = [await fill("embed", [text]) for text in texts]

    assert await asyncio.gather(*(fill("embed", [text]) for text in texts)) == alone


def dot(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
