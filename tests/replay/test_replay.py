"""Workflows that were under way before a change go on after it: recorded histories, replayed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer
from temporalio.workflow import NondeterminismError

from everfill.autofill.janitor_workflow import JanitorWorkflow
from everfill.autofill.setup_workflow import SetupWorkflow

HISTORIES = sorted((Path(__file__).parent / "histories").glob("*.json"))


@pytest.fixture
def replayer() -> Iterator[Replayer]:
    with ThreadPoolExecutor(2) as executor:
        yield Replayer(workflows=[SetupWorkflow, JanitorWorkflow], workflow_task_executor=executor)


def history(path: Path, **changes: str) -> WorkflowHistory:
    text = path.read_text(encoding="utf-8")
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    return WorkflowHistory.from_json(path.stem, text)


def test_there_are_histories_of_every_workflow() -> None:
    kinds = {path.stem.split("-")[0] for path in HISTORIES}
    assert kinds == {"setup", "janitor"}


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_recorded_history_replays(replayer: Replayer, path: Path) -> None:
    await replayer.replay_workflow(history(path))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_a_history_of_other_steps_does_not(replayer: Replayer, path: Path) -> None:
    changes = {"heal": "harm"} if path.stem == "janitor" else {"serve_collection": "ignore_it"}
    with pytest.raises(NondeterminismError):
        await replayer.replay_workflow(history(path, **changes))
