"""How fast one model may be asked: learnt from what it takes and what it refuses. No I/O, no clock.

Calls are spaced evenly at a rate. While no limit is known the rate doubles every quarter of a
second, as answers come. A refusal sets it to what was really answered since the one before, or cuts
it by three hundredths if that was as much; without refusals it creeps up, by a hundredth and then
faster, so that a limit that nobody tells is met within a few percent at a refusal now and then.
(Additive increase and multiplicative decrease after Jacobson, on a rate and not on a window: short
calls pass any limit on calls a second one at a time; and the measured rate of delivery of BBR in
place of halving.)

What fails again and again is left alone for a while, and then tried by one caller: a circuit
breaker.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

__all__ = ["Pace", "Turns", "accepted", "failed", "recovered", "rejected", "reserve"]

RATE_START: Final = 20.0
RATE_MAX: Final = 10_000.0
RATE_MIN: Final = 1 / 60
DOUBLING_SECONDS: Final = 0.25
ANSWERED_SHARE: Final = 0.5
"""Of the calls that the time since the last doubling had room for: answers of a slow model come
late, and so do its refusals."""
CREEP_SECONDS: Final = 5.0
CREEP: Final = 0.01
CREEP_MAX: Final = 0.25
CREEPS_MAX: Final = 12
"""At one turn, of a rate so slow that turns are rarer than they are due."""
CUT: Final = 0.97
MEASURED_SECONDS_MIN: Final = 0.8
MEASURED_CALLS_MIN: Final = 5
BLOCK_SECONDS: Final = 1.0
"""After a refusal that does not say how long; twice as long after each that follows with nothing
answered in between: no rate is slow enough for who takes nothing."""
BLOCK_DOUBLINGS_MAX: Final = 5
BLOCK_SECONDS_MAX: Final = 300.0
VAIN_SHARE: Final = 0.25
"""Of that wait, at least, where a provider says that it need not be so long and refuses again."""
FAILURES_MAX: Final = 10
"""In a row: then the breaker opens. One call in two that fails is no outage."""
OPEN_SECONDS: Final = 1.0
OPEN_SECONDS_MAX: Final = 60.0
PROBE_SECONDS: Final = 10.0
"""How long the others wait for the one that tries."""


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """The pace towards one model. Times are in seconds, of one clock.

    Attributes:
        version: Of this message: processes share it.
        rate: Calls a second.
        limited: Whether a limit was met: then the rate creeps, before it doubles.
        creep: By which part it is raised next.
        raised_at: When it was raised or cut last; None: never asked.
        next_at: When the next turn is.
        blocked_until: Before, nobody calls.
        failures: Outages in a row.
        failed_at: When the last one that counts was.
        probe_until: Until then the others wait for the one that tries.
        cut_at: When a refusal was heeded last.
        answered: Calls answered since.
        answered_before: Of these, before the rate was raised last.
        idle_seconds: Of the time since, when nobody wanted to call.
        vain: Refusals in a row with nothing answered in between.
    """

    version: int = 1
    rate: float = RATE_START
    limited: bool = False
    creep: float = CREEP
    raised_at: float | None = None
    next_at: float = 0.0
    blocked_until: float = 0.0
    failures: int = 0
    failed_at: float = 0.0
    probe_until: float = 0.0
    cut_at: float = 0.0
    answered: int = 0
    answered_before: int = 0
    idle_seconds: float = 0.0
    vain: int = 0


class Turns(NamedTuple):
    """Turns to call.

    Attributes:
        number: How many; 0: none now, ask again at `at`.
        at: When the first one is.
        spacing: Seconds between two of them.
    """

    number: int
    at: float
    spacing: float = 0.0


def reserve(
    pace: Pace, now: float, wanted: int, *, rate_max: float = RATE_MAX
) -> tuple[Pace, Turns]:
    """Take the next turns.

    Args:
        pace: As it is.
        now: The time.
        wanted: The most turns that are of use now.
        rate_max: Calls a second that an operator allows.
    """
    if now < pace.blocked_until:
        return pace, Turns(0, pace.blocked_until)
    if pace.failures >= FAILURES_MAX:
        if now < pace.probe_until:
            return pace, Turns(0, pace.probe_until)
        probing = msgspec.structs.replace(pace, probe_until=now + PROBE_SECONDS)
        return probing, Turns(1, now)
    if pace.raised_at is None:
        pace = msgspec.structs.replace(pace, raised_at=now, cut_at=now, next_at=now)
    idle_seconds = max(0.0, now - max(pace.next_at, pace.blocked_until))
    pace = _raise(pace, now)
    spacing = 1 / min(pace.rate, rate_max)
    at = max(now, pace.next_at)
    taken = msgspec.structs.replace(
        pace, next_at=at + wanted * spacing, idle_seconds=pace.idle_seconds + idle_seconds
    )
    return taken, Turns(wanted, at, spacing)


def accepted(pace: Pace, count: int) -> Pace:
    """Calls were answered, whatever the answer."""
    return msgspec.structs.replace(pace, answered=pace.answered + count)


def recovered(pace: Pace, *, sent_at: float) -> Pace:
    """A call was answered: if it began after the last outage, that is over."""
    if sent_at < pace.failed_at:
        return pace
    return msgspec.structs.replace(pace, failures=0, probe_until=0.0)


def rejected(
    pace: Pace, now: float, *, sent_at: float, retry_after_seconds: float | None = None
) -> Pace:
    """A call was refused as one too many.

    Args:
        pace: As it is.
        now: When the refusal came.
        sent_at: When the call began: one that was on its way at the last cut says nothing new.
        retry_after_seconds: As the provider says.
    """
    flown = sent_at < pace.cut_at
    vain = pace.vain if flown else 0 if pace.answered else pace.vain + 1
    seconds = BLOCK_SECONDS * 2 ** min(max(vain - 1, 0), BLOCK_DOUBLINGS_MAX)
    if retry_after_seconds is not None:
        least = seconds * VAIN_SHARE if vain > 1 else 0.0
        seconds = min(max(retry_after_seconds, least), BLOCK_SECONDS_MAX)
    pace = msgspec.structs.replace(
        pace,
        failures=0,
        probe_until=0.0,
        vain=vain,
        blocked_until=max(pace.blocked_until, now + seconds),
    )
    if flown:
        return pace
    rate = pace.rate if vain else _cut(pace, now)
    return msgspec.structs.replace(
        pace,
        rate=rate,
        limited=pace.limited or not vain,
        creep=CREEP,
        raised_at=now,
        next_at=max(pace.next_at, now + 1 / rate),
        cut_at=now,
        answered=0,
        answered_before=0,
        idle_seconds=seconds if vain else 0.0,  # a wait in vain says nothing of a rate
    )


def failed(pace: Pace, now: float, *, sent_at: float) -> Pace:
    """A call came to nothing: no connection, no whole answer in time, an outage.

    One that was on its way when the breaker opened says nothing new.
    """
    if pace.failures >= FAILURES_MAX and sent_at < pace.failed_at:
        return pace
    failures = pace.failures + 1
    blocked_until = pace.blocked_until
    if failures >= FAILURES_MAX:
        doublings = min(failures - FAILURES_MAX, 10)
        seconds = min(OPEN_SECONDS * 2.0**doublings, OPEN_SECONDS_MAX)
        blocked_until = max(blocked_until, now + seconds)
    return msgspec.structs.replace(
        pace, failures=failures, failed_at=now, probe_until=0.0, blocked_until=blocked_until
    )


def _raise(pace: Pace, now: float) -> Pace:
    """Speed up by what is due."""
    assert pace.raised_at is not None, "it is set at the first turn"
    rate, creep, raised_at = pace.rate, pace.creep, pace.raised_at
    every = CREEP_SECONDS if pace.limited else DOUBLING_SECONDS
    due = int((now - raised_at) / every)
    if not due:
        return pace
    if pace.limited:
        for _ in range(min(due, CREEPS_MAX)):
            rate, creep = rate * (1 + creep), min(creep * 2, CREEP_MAX)
    elif pace.answered - pace.answered_before >= ANSWERED_SHARE * rate * every:
        rate *= 2
    else:
        return pace
    return msgspec.structs.replace(
        pace,
        rate=min(rate, RATE_MAX),
        creep=creep,
        raised_at=now,
        answered_before=pace.answered,
    )


def _cut(pace: Pace, now: float) -> float:
    """The rate after a refusal."""
    busy_seconds = now - pace.cut_at - pace.idle_seconds
    least = pace.rate * CUT
    if busy_seconds >= MEASURED_SECONDS_MIN or pace.answered >= MEASURED_CALLS_MIN:
        least = min(least, pace.answered / max(busy_seconds, 1e-3))
    return max(least, RATE_MIN)
