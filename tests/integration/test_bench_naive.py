from __future__ import annotations

from collections import Counter

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client

from everfill.bench.naive.history import Health
from everfill.bench.naive.plan import NaivePlan, Shape
from everfill.bench.naive.report import Outcome
from everfill.bench.naive.run import run_naive
from everfill.bench.naive.trial import Stall
from everfill.infra.stack import Endpoints

TASK_ENDS = ("COMPLETED", "FAILED", "TIMED_OUT")


async def history_of(client: Client, workflow_id: str) -> Counter[str]:
    """How many events of each type the server has of a workflow's newest run."""
    return Counter(
        [
            EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")
            async for event in client.get_workflow_handle(workflow_id).fetch_history_events()
        ]
    )


async def test_fifty_cells_are_filled_at_three_events_an_activity_and_three_a_workflow_task(
    stack: Endpoints,
) -> None:
    plan = NaivePlan(rows=(50,), repaired_rows=(), word_chars=12)
    report = await run_naive(stack.temporal_address, plan)

    client = await Client.connect(stack.temporal_address)
    assert [(it.shape, it.outcome, it.error) for it in report.trials] == [
        (Shape.GATHERED, Outcome.COMPLETED, None),
        (Shape.CHAINED, Outcome.COMPLETED, None),
    ]
    for trial, cells in zip(report.trials, (50, 100), strict=True):
        events = await history_of(client, trial.workflow_id)
        tasks = {name: n for name, n in events.items() if name.startswith("WORKFLOW_TASK")}
        assert events - Counter(tasks) == Counter(
            WORKFLOW_EXECUTION_STARTED=1,
            ACTIVITY_TASK_SCHEDULED=cells,
            ACTIVITY_TASK_STARTED=cells,
            ACTIVITY_TASK_COMPLETED=cells,
            WORKFLOW_EXECUTION_COMPLETED=1,
        )
        ended = sum(tasks.get(f"WORKFLOW_TASK_{end}", 0) for end in TASK_ENDS)
        assert tasks["WORKFLOW_TASK_SCHEDULED"] == ended > 1
        assert trial.history_events == 2 + 3 * cells + sum(tasks.values())
        assert (trial.cells, trial.cells_done, trial.runs) == (cells, cells, 1)

    values = await client.get_workflow_handle(report.trials[1].workflow_id).result()
    words = [f"w{row} ".ljust(12, "x") for row in range(50)]
    assert values == [[f"1 {word}", f"2 1 {word}"] for word in words]


async def test_a_trial_shows_what_the_server_and_the_worker_spent(stack: Endpoints) -> None:
    plan = NaivePlan(rows=(50,), repaired_rows=())
    report = await run_naive(stack.temporal_address, plan)
    trial = report.trials[0]
    assert trial.server_cpu_seconds is not None
    assert trial.server_cpu_seconds > 0
    assert trial.worker_cpu_seconds > 0
    assert trial.server_memory_bytes is not None
    assert trial.server_memory_bytes > 2**20
    assert trial.worker_memory_bytes > 2**20
    assert trial.database_bytes is None
    assert trial.history_bytes > 50 * plan.word_chars


async def test_a_continued_fill_takes_more_histories_and_the_same_activities(
    stack: Endpoints,
) -> None:
    plan = NaivePlan(rows=(), repaired_rows=(60,), in_flight_max=5, history_events_max=70)
    windowed, continued = (await run_naive(stack.temporal_address, plan)).trials
    assert windowed.outcome is continued.outcome is Outcome.COMPLETED
    assert (windowed.runs, windowed.cells_done) == (1, 60)
    assert continued.cells_done == 60
    assert continued.runs >= 2
    assert continued.history_events > 3 * 60 + 2 * continued.runs


async def test_what_the_server_refuses_is_reported_in_its_words(stack: Endpoints) -> None:
    plan = NaivePlan(rows=(1,), repaired_rows=(), word_chars=3_000_000)
    report = await run_naive(stack.temporal_address, plan)
    gathered = report.trials[0]
    assert gathered.outcome is Outcome.BROKE
    assert gathered.error == "Blob data size exceeds limit."
    assert (gathered.cells_done, gathered.runs) == (0, 0)
    assert report.first_breaks()[Shape.GATHERED] is gathered


async def test_a_size_that_runs_out_of_time_keeps_larger_ones_from_being_tried(
    stack: Endpoints,
) -> None:
    plan = NaivePlan(rows=(20, 30), repaired_rows=(20, 30), seconds_max=0.0)
    report = await run_naive(stack.temporal_address, plan)
    assert [(it.shape, it.rows, it.outcome) for it in report.trials] == [
        (shape, 20, Outcome.OUT_OF_TIME) for shape in Shape
    ]
    assert not report.first_breaks()


@pytest.mark.slow
async def test_the_2001st_pending_activity_is_refused(stack: Endpoints) -> None:
    plan = NaivePlan(rows=(2_001,), repaired_rows=())
    report = await run_naive(stack.temporal_address, plan)
    assert {trial.outcome for trial in report.trials} == {Outcome.BROKE}
    for trial in report.trials:
        assert trial.error == (
            "PENDING_ACTIVITIES_LIMIT_EXCEEDED: PendingActivitiesLimitExceeded: the number of "
            "pending activities, 2000, has reached the per-workflow limit of 2000"
        )


def test_a_task_that_fails_while_events_are_added_is_slow_and_not_broken() -> None:
    stall = Stall()
    seen = [
        stall.is_final(Health(task_tries=tries, events=events), now)
        for tries, events, now in (
            (1, 5, 0.0),
            (3, 5, 4.0),  # the third try: what is quiet since then counts
            (4, 5, 9.0),
            (5, 6, 12.0),  # an activity ended meanwhile
            (6, 6, 21.0),
            (6, 6, 22.0),
        )
    ]
    assert seen == [False, False, False, False, False, True]
