"""The pace towards a model, against providers simulated in time that is a number."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import pytest

from everfill.compute.models import pacing
from everfill.compute.models.pacing import Pace, accepted, failed, recovered, rejected, reserve

SECONDS = 120.0
SLOTS = 200
LATENCY_SECONDS = 0.02


class Provider(Protocol):
    def ask(self, now: float) -> tuple[bool, float | None]:
        """Whether it takes a call, and when it asks to come back."""


@dataclass
class Bucket(Provider):
    """So many calls a second, and a few that were saved up."""

    rate: float
    saved_max: float
    retry_after_seconds: float | None = None
    saved: float = field(init=False)
    at: float = 0.0

    def __post_init__(self) -> None:
        self.saved = self.saved_max

    def ask(self, now: float) -> tuple[bool, float | None]:
        self.saved = min(self.saved_max, self.saved + (now - self.at) * self.rate)
        self.at = now
        if self.saved < 1:
            return False, self.retry_after_seconds
        self.saved -= 1
        return True, None


@dataclass
class Window(Provider):
    """So many calls in each second or minute."""

    calls: int
    seconds: float
    used: dict[int, int] = field(default_factory=dict)

    def ask(self, now: float) -> tuple[bool, float | None]:
        number = int(now // self.seconds)
        self.used[number] = self.used.get(number, 0) + 1
        taken = self.used[number] <= self.calls
        return taken, None if taken else (number + 1) * self.seconds - now


@dataclass
class Shut(Provider):
    """Takes nothing at first, and then as much as another one."""

    seconds: float
    then: Provider
    retry_after_seconds: float | None = None

    def ask(self, now: float) -> tuple[bool, float | None]:
        return (False, self.retry_after_seconds) if now < self.seconds else self.then.ask(now)


@dataclass
class Outcome:
    accepted: int = 0
    rejected: int = 0
    pace: Pace = field(default_factory=Pace)

    @property
    def rejected_share(self) -> float:
        return self.rejected / (self.accepted + self.rejected)


def run(provider: Provider, *, processes: int = 1, rate_max: float = pacing.RATE_MAX) -> Outcome:
    """Workers with more to do than they may, sharing one pace."""
    chance, numbers, told = random.Random(7), itertools.count(), Outcome()
    free = [SLOTS // processes] * processes
    events: list[tuple[float, int, str, int, float]] = []

    def at(when: float, what: str, process: int, sent_at: float = 0.0) -> None:
        heapq.heappush(events, (when, next(numbers), what, process, sent_at))

    for process in range(processes):
        at(0.001 * process, "ask", process)
    while events[0][0] < SECONDS:
        now, _, what, process, sent_at = heapq.heappop(events)
        if what == "ask":
            wanted = max(1, min(free[process], int(told.pace.rate * 0.1)))
            if not free[process]:
                at(now + 0.001, "ask", process)
                continue
            told.pace, turns = reserve(told.pace, now, wanted, rate_max=rate_max)
            if not turns.number:
                at(turns.at, "ask", process)
                continue
            free[process] -= turns.number
            for turn in range(turns.number):
                at(turns.at + turn * turns.spacing, "send", process)
            at(turns.at + (turns.number - 1) * turns.spacing, "ask", process)
        elif what == "send":
            if now < told.pace.blocked_until:
                free[process] += 1
            else:
                at(now + LATENCY_SECONDS * chance.uniform(0.2, 0.5), "arrive", process, now)
        else:
            free[process] += 1
            taken, retry_after = provider.ask(now)
            told.accepted += taken
            told.rejected += not taken
            told.pace = (
                accepted(told.pace, 1)
                if taken
                else rejected(told.pace, now, sent_at=sent_at, retry_after_seconds=retry_after)
            )
    return told


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize(
    ("make", "rate"),
    [
        (lambda: Bucket(10, 10), 10),
        (lambda: Bucket(10, 10, 1.0), 10),
        (lambda: Bucket(100, 100), 100),
        (lambda: Bucket(100, 100, 0.5), 100),
        (lambda: Window(10, 1), 10),
    ],
)
def test_a_limit_that_nobody_tells_is_met_within_a_few_percent(
    make: Callable[[], Provider], rate: float, processes: int
) -> None:
    told = run(make(), processes=processes)

    assert told.accepted / (rate * SECONDS) == pytest.approx(1, abs=0.05)
    assert told.rejected_share < 0.02


def test_what_was_saved_up_is_taken_and_soon_seen_to_be_spent() -> None:
    told = run(Bucket(10, 600))

    assert told.accepted / (600 + 10 * SECONDS) == pytest.approx(1, abs=0.05)
    assert told.rejected_share < 0.02


def test_a_limit_a_minute_is_used_up_and_waited_for() -> None:
    told = run(Window(600, 60))

    assert told.accepted == 1_200
    assert told.rejected_share < 0.03


@pytest.mark.parametrize("retry_after_seconds", [None, 0.0, 0.05, 1.0])
@pytest.mark.parametrize(("rate", "seconds"), [(10, 12.0), (100, 12.0), (100, 30.0)])
def test_a_provider_that_takes_nothing_for_a_while_is_soon_asked_at_full_rate_again(
    rate: int, seconds: float, retry_after_seconds: float | None
) -> None:
    told = run(Shut(seconds, Bucket(rate, rate), retry_after_seconds))

    assert told.accepted > 0.8 * rate * (SECONDS - 2 * seconds)


@pytest.mark.parametrize("retry_after_seconds", [None, 0.0, 0.05])
def test_a_provider_that_takes_nothing_is_asked_ever_more_seldom_whatever_it_says(
    retry_after_seconds: float | None,
) -> None:
    told = run(Shut(SECONDS, Bucket(10, 10), retry_after_seconds))

    assert told.accepted == 0
    assert told.rejected < 60


def test_a_limit_that_is_told_is_never_met() -> None:
    told = run(Bucket(10, 10), rate_max=10)

    assert told.accepted / (10 * SECONDS) == pytest.approx(1, abs=0.05)
    assert told.rejected == 0


def test_a_provider_without_a_limit_is_soon_asked_as_fast_as_slots_allow() -> None:
    told = run(Bucket(1e9, 1e9))

    assert told.pace.rate == pacing.RATE_MAX
    assert not told.rejected
    assert told.accepted > 100_000


def test_refusals_of_calls_that_were_on_their_way_cut_once() -> None:
    pace, _ = reserve(Pace(rate=100.0, limited=True), 10.0, 50)
    pace = rejected(accepted(pace, 40), 11.0, sent_at=10.9)
    once = pace.rate

    for _ in range(50):
        pace = rejected(pace, 11.01, sent_at=10.95)

    assert pace.rate == once < 100


def test_a_refusal_after_hours_of_nothing_to_do_says_nothing_of_those_hours() -> None:
    pace, _ = reserve(Pace(rate=100.0, limited=True), 0.0, 10)
    pace = accepted(pace, 10)
    pace, _ = reserve(pace, 7_200.0, 10)
    pace = rejected(accepted(pace, 10), 7_200.1, sent_at=7_200.05)

    assert pace.rate > 50


def test_the_breaker_opens_after_failures_in_a_row_and_lets_one_try() -> None:
    pace, _ = reserve(Pace(), 0.0, 1)
    for _ in range(pacing.FAILURES_MAX):
        pace = failed(pace, 1.0, sent_at=0.9)

    pace, closed = reserve(pace, 1.5, 10)
    pace, probe = reserve(pace, 2.0, 10)
    pace, others = reserve(pace, 2.1, 10)

    assert (closed.number, closed.at) == (0, 1.0 + pacing.OPEN_SECONDS)
    assert probe.number == 1
    assert others.number == 0
    assert reserve(recovered(pace, sent_at=0.5), 2.2, 10)[1].number == 0, "that is old news"
    pace, turns = reserve(recovered(pace, sent_at=2.0), 2.2, 10)
    assert turns.number == 10


def test_the_breaker_stays_open_longer_each_time_up_to_a_bound() -> None:
    pace, waits = Pace(), []
    for number in range(20):
        now = pace.blocked_until + 1
        pace = failed(pace, now, sent_at=now)
        waits.append(pace.blocked_until - now if number >= pacing.FAILURES_MAX - 1 else 0)

    assert waits[pacing.FAILURES_MAX - 1 :][:4] == [1, 2, 4, 8]
    assert waits[-1] == pacing.OPEN_SECONDS_MAX


def test_calls_that_failed_together_open_the_breaker_once() -> None:
    pace = Pace()
    for _ in range(200):
        pace = failed(pace, 1.0, sent_at=0.9)

    assert pace.blocked_until == 1.0 + pacing.OPEN_SECONDS


def test_a_success_in_between_keeps_the_breaker_closed() -> None:
    pace = Pace()
    for _ in range(20):
        pace = failed(failed(pace, 1.0, sent_at=1.0), 1.0, sent_at=1.0)
        pace = recovered(pace, sent_at=1.0)

    assert pace.blocked_until == 0


def test_a_provider_cannot_ask_for_more_than_a_bound() -> None:
    pace = rejected(Pace(), 0.0, sent_at=0.0, retry_after_seconds=1e9)

    assert pace.blocked_until == pacing.BLOCK_SECONDS_MAX
