"""Record the histories that `test_replay.py` replays.

    .venv/bin/python tests/replay/record.py

Run it when a workflow gains a path worth keeping, and keep the old files: they are what workflows
that are under way look like, and new code must be able to go on with them.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from pathlib import Path
from typing import Any

from temporalio import activity
from temporalio.client import Client, WorkflowHandle
from temporalio.worker import Worker

from everfill.autofill.janitor_workflow import JanitorWorkflow
from everfill.autofill.setup_workflow import SetupWorkflow
from everfill.autofill.workflow_names import (
    JANITOR_WORKFLOW,
    SETUP_WORKFLOW,
    WORK_SIGNAL,
    JanitorStart,
    ServedCollection,
    SetupStart,
    Ticked,
)
from everfill.infra.stack import open_stack
from everfill.kernel.config import Settings

HISTORIES = Path(__file__).parent / "histories"
QUEUE = "recorded"


class Played:
    """Activities that follow a script."""

    def __init__(self) -> None:
        self.busy = 0
        self.ticks = 0
        self.ticked = asyncio.Event()
        self.closing: WorkflowHandle[Any, Any] | None = None

    @activity.defn(name="share_collection")
    async def share(self, collection_id: int) -> None:
        assert collection_id

    @activity.defn(name="serve_collection")
    async def serve(self, start: SetupStart) -> ServedCollection:
        self.busy -= 1
        return ServedCollection(after=f"{int(start.after.split('-')[0]) + 1}-0", idle=self.busy < 0)

    @activity.defn(name="roll_up_usage")
    async def roll_up(self, collection_id: int) -> None:
        assert collection_id
        if self.closing:
            handle, self.closing = self.closing, None
            self.busy = 1
            await handle.signal(WORK_SIGNAL)

    @activity.defn(name="heal")
    async def heal(self) -> Ticked:
        self.ticks += 1
        if self.ticks > 2:
            self.ticked.set()
        return Ticked(report={"reclaimed": self.ticks}, next_in_seconds=0.1)


async def record_setup(client: Client, played: Played, name: str, *, late_signal: bool) -> None:
    """One that serves three times and ends, or is signalled while it ends and goes on."""
    played.busy = 3
    handle = await client.start_workflow(
        SETUP_WORKFLOW,
        SetupStart(collection_id=1),
        id=name,
        task_queue=QUEUE,
        start_signal=WORK_SIGNAL,
    )
    played.closing = handle if late_signal else None
    await handle.result()
    await save(handle, name)


async def record_janitor(client: Client, played: Played, name: str) -> None:
    """Three ticks, cut off."""
    handle = await client.start_workflow(
        JANITOR_WORKFLOW, JanitorStart(), id=name, task_queue=QUEUE
    )
    await played.ticked.wait()
    await handle.terminate()
    await save(handle, name)


async def save(handle: WorkflowHandle[Any, Any], name: str) -> None:
    """Write a history beside the others."""
    history = json.loads((await handle.fetch_history()).to_json())
    text = json.dumps(history, indent=1, sort_keys=True)
    await asyncio.to_thread((HISTORIES / f"{name}.json").write_text, f"{text}\n", encoding="utf-8")


async def main() -> None:
    """Record everything."""
    played = Played()
    with tempfile.TemporaryDirectory() as folder:
        async with open_stack(Settings(data_dir=Path(folder))) as endpoints:
            client = await Client.connect(endpoints.temporal_address, identity="recorder")
            async with Worker(
                client,
                task_queue=QUEUE,
                workflows=[SetupWorkflow, JanitorWorkflow],
                activities=[played.share, played.serve, played.roll_up, played.heal],
                identity="recorder",
            ):
                await record_setup(client, played, "setup-ends", late_signal=False)
                await record_setup(client, played, "setup-signalled-late", late_signal=True)
                await record_janitor(client, played, "janitor")


if __name__ == "__main__":
    asyncio.run(main())
