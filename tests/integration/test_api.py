"""The HTTP edge over a running engine."""

from __future__ import annotations

import httpx2
import pytest

from engine import Engine
from everfill.api.http import make_api, status_of
from everfill.app import App
from everfill.autofill.bus import Bus
from everfill.autofill.columns import ColumnDraft
from everfill.cli.exit_codes import ExitCode, exit_code_of
from everfill.infra.stack import Endpoints
from everfill.kernel import errors


@pytest.fixture
async def client(engine: Engine, stack: Endpoints):  # type: ignore[no-untyped-def]  # noqa: ANN201
    async with Bus.open(stack.redis_url) as bus:
        app = App(
            settings=engine.settings,
            endpoints=stack,
            pool=engine.pool,
            blobs=engine.blobs,
            bus=bus,
            announcer=None,  # type: ignore[arg-type] - the routes announce nothing
            queue=engine.queue,
            dispatcher=engine.dispatcher,
            edits=engine.edits,
            columns=engine.columns,
        )
        transport = httpx2.ASGITransport(make_api(app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://everfill") as made:
            yield made


async def test_progress_is_what_the_cells_say(engine: Engine, client: httpx2.AsyncClient) -> None:
    table = await engine.table(
        "api",
        ColumnDraft(name="word"),
        ColumnDraft(name="one", kind="template", template="1 {{word}}"),
    )
    await engine.add(table, word="tea")
    assert (await client.get("/healthz")).json() == {"status": "ok"}
    before = (await client.get(f"/v1/collections/{table}/progress")).json()
    assert before["unsettled"] == 1
    await engine.settle(table)
    after = (await client.get(f"/v1/collections/{table}/progress")).json()
    assert (after["rows"], after["cells"]["ready"], after["unsettled"]) == (1, 1, 0)
    (listed,) = (await client.get("/v1/collections")).json()
    assert listed == {"collection_id": table, "namespace": "default", "name": "api"}


async def test_an_unknown_collection_is_a_404_in_words(client: httpx2.AsyncClient) -> None:
    answer = await client.get("/v1/collections/999/progress")
    assert answer.status_code == 404
    assert answer.json()["code"] == "collection_unknown"


@pytest.mark.parametrize(
    ("error", "http", "code"),
    [
        (errors.InvalidError("x", "x"), 422, ExitCode.INVALID),
        (errors.NotFoundError("x", "x"), 404, ExitCode.NOT_FOUND),
        (errors.ConflictError("x", "x"), 409, ExitCode.CONFLICT),
        (errors.ForbiddenError("x", "x"), 403, ExitCode.FORBIDDEN),
        (errors.UnavailableError("x", "x"), 503, ExitCode.UNAVAILABLE),
        (errors.ProviderFailedError("x", "x"), 502, ExitCode.PROVIDER_FAILED),
        (errors.EverfillError("x", "x"), 500, ExitCode.FAULT),
    ],
)
def test_every_family_of_errors_has_a_status_and_an_exit_code(
    error: errors.EverfillError, http: int, code: ExitCode
) -> None:
    assert (status_of(error), exit_code_of(error)) == (http, code)
    families = errors.EverfillError.__subclasses__()
    assert len(families) == 6
