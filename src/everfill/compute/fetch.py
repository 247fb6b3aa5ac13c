"""The `fetch` kind: the page behind a URL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from everfill.compute.extract_pool import shared_pool, take_shared_pool
from everfill.compute.options import check_names, check_output_type, choice_option
from everfill.compute.per_loop import PerLoop
from everfill.compute.protocol import (
    ComputeContext,
    ComputeKind,
    ComputeRequest,
    ComputeResult,
    CostClass,
    Failure,
    KindSpec,
    NotFound,
    Value,
)
from everfill.kernel.errors import InvalidError
from everfill.tables.types import ColumnType, TypeName
from everfill.tables.values import JsonValue

if TYPE_CHECKING:
    from everfill.compute.fetch_client import FetchClient, HttpPage

__all__ = ["FetchKind"]

_SPEC: Final = KindSpec(
    name="fetch",
    summary="The page behind a URL: its status, final address, title and text.",
    cost_class=CostClass.REMOTE,
    batch_max=1,
    default_type=ColumnType(name=TypeName.JSON),
    output_types=frozenset({TypeName.JSON, TypeName.TEXT}),
)
_PARTS: Final = ("page", "text")


class FetchKind(ComputeKind):
    """A page as `{"status", "url", "title", "text", "mime"}`, or its text alone.

    Option `part` is `page` or `text`; a text column holds the text, a JSON column the page unless
    it says otherwise. Equal pages give equal values. A page without readable text (an image) has
    null for its text.
    """

    def __init__(self) -> None:
        self._client = PerLoop(_make_client)

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse a part that the column cannot hold."""
        check_output_type(_SPEC, output_type)
        check_names(options, {"part"})
        if _part(output_type, options) == "page" and output_type.name is TypeName.TEXT:
            hint = "Make the column json, or leave the option out."
            raise InvalidError("option_invalid", "A text column cannot hold a page.", hint=hint)

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        """Fetch each page; one request is the grain."""
        return [await self._fetch(request, context) for request in requests]

    async def aclose(self) -> None:
        """Close the running loop's connections and reader processes."""
        if client := self._client.take():
            await client.aclose()
        if pool := take_shared_pool():
            await pool.aclose()

    async def _fetch(self, request: ComputeRequest, context: ComputeContext) -> ComputeResult:
        if not request.text.strip():
            return NotFound(reason="no URL")
        page = await self._client.get().get(request.text, context.settings.fetch)
        if isinstance(page, NotFound | Failure):
            return page
        wants_text = _part(request.output_type, request.options) == "text"
        return await _read(page, context.settings.fetch.timeout_seconds, wants_text=wants_text)


def _part(output_type: ColumnType, options: Mapping[str, JsonValue]) -> str:
    default = "text" if output_type.name is TypeName.TEXT else "page"
    return choice_option(options, "part", _PARTS, default)


async def _read(page: HttpPage, seconds: float, *, wants_text: bool) -> ComputeResult:
    read = await shared_pool().extract(
        page.body,
        name=page.url.partition("?")[0],
        mime=page.mime,
        charset=page.charset,
        seconds=seconds,
    )
    unreadable = isinstance(read, Failure)
    if unreadable and (wants_text or read.code != "format_unsupported"):
        return read
    text, title = (None, None) if unreadable else (read.text, read.title)
    if not wants_text:
        return Value(
            value={
                "status": page.status,
                "url": page.url,
                "title": title,
                "text": text,
                "mime": page.mime,
            }
        )
    return Value(value=text) if text and text.strip() else NotFound(reason="no text on the page")


def _make_client() -> FetchClient:
    from everfill.compute.fetch_client import FetchClient  # noqa: PLC0415 - httpx2 takes 0.3 s

    return FetchClient()
