"""The `extract_text` kind: the text of a document, with its pages marked."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Final

from everfill.compute.extract_pool import shared_pool, take_shared_pool
from everfill.compute.extract_result import Extract
from everfill.compute.options import check_names, check_output_type
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
from everfill.kernel.errors import NotFoundError
from everfill.tables.types import TEXT, ColumnType, TypeName
from everfill.tables.values import JsonValue

__all__ = ["ExtractTextKind"]

_SPEC: Final = KindSpec(
    name="extract_text",
    summary="The text of a PDF, DOCX, PPTX, XLSX, HTML or text file.",
    cost_class=CostClass.LOCAL,
    batch_max=4,
    default_type=TEXT,
    output_types=frozenset({TypeName.TEXT}),
)
_HTML: Final = re.compile(r"\s*<(?:!doctype html|html|head|body)\b", re.IGNORECASE)
_PAGED: Final = frozenset({"pdf", "pptx"})


class ExtractTextKind(ComputeKind):
    """A file's text; a text input is returned as it is, unless it is an HTML page.

    Pages, slides and sheets begin with a mark that `everfill.compute.pages` describes.
    """

    @property
    def spec(self) -> KindSpec:
        """What the kind declares about itself."""
        return _SPEC

    def check(self, output_type: ColumnType, options: Mapping[str, JsonValue]) -> None:
        """Refuse options and types that are not the kind's."""
        check_output_type(_SPEC, output_type)
        check_names(options, ())

    async def compute(
        self, requests: Sequence[ComputeRequest], context: ComputeContext
    ) -> Sequence[ComputeResult]:
        """Read each document in a reader process."""
        return await asyncio.gather(*(_read(request, context) for request in requests))

    async def aclose(self) -> None:
        """End the reader processes of the running loop."""
        if pool := take_shared_pool():
            await pool.aclose()


async def _read(request: ComputeRequest, context: ComputeContext) -> ComputeResult:
    if isinstance(request.source, dict):
        return await _read_file(request.source, context)
    text = request.source if isinstance(request.source, str) else request.text
    if not text.strip():
        return NotFound(reason="no text")
    if not _HTML.match(text):
        return Value(value=text)
    data = text.encode("utf-8", "replace")
    return _result(await shared_pool().extract(data, mime="text/html", charset="utf-8"))


async def _read_file(file: Mapping[str, JsonValue], context: ComputeContext) -> ComputeResult:
    sha256 = file.get("sha256")
    if not isinstance(sha256, str):
        message = "The input is an object, but no file: it names no sha256."
        return Failure(code="value_invalid", message=message, transient=False)
    try:
        data = await context.files.get(sha256)
    except NotFoundError as error:
        return Failure(code=error.code, message=str(error), transient=False)
    name, mime = file.get("name"), file.get("mime")
    return _result(
        await shared_pool().extract(
            data,
            name=name if isinstance(name, str) else "",
            mime=mime if isinstance(mime, str) else "",
        )
    )


def _result(read: Extract | Failure) -> ComputeResult:
    if isinstance(read, Failure):
        return read
    if not read.text.strip():
        return NotFound(reason=f"no text {'on its pages' if read.format in _PAGED else 'in it'}")
    return Value(value=read.text)
