"""The decider: worth, verdicts and their reasons."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tuning.priority import Priority
from tuning.queue.decide import Ask, Situation, decide, estimate_us, tuning_slices, worth_of_miss_us

CONV = Ask("Conv", flops=230e6, bytes_moved=2e6, peak_bytes=8e6)
FREE = Situation(workers=1, memory_bytes=8 << 30, capability="cpu.zen3")


def test_worth_grows_with_calls_time_and_expected_gain() -> None:
    base = worth_of_miss_us(CONV, {})
    assert worth_of_miss_us(replace(CONV, calls=3.0), {}) == 3 * base
    assert worth_of_miss_us(replace(CONV, flops=2.3e9), {}) > 5 * base
    assert worth_of_miss_us(CONV, {"Conv": 0.9}) > base > worth_of_miss_us(CONV, {"Conv": 0.02})


def test_a_measured_time_is_believed_over_the_estimate() -> None:
    assert worth_of_miss_us(replace(CONV, measured_us=10.0), {"Conv": 0.5}) == 5.0


def test_time_is_arithmetic_or_memory_whichever_is_longer() -> None:
    assert estimate_us(1e9, 0) > estimate_us(1e6, 0)
    assert estimate_us(0, 1e9) > estimate_us(0, 1e6)
    assert estimate_us(1e9, 1e9) == max(estimate_us(1e9, 0), estimate_us(0, 1e9))


def test_what_was_asked_for_is_promoted_and_a_waiting_caller_comes_first() -> None:
    assert decide(CONV, FREE).verdict == "promote"
    assert decide(CONV, FREE).priority == Priority.NORMAL
    assert decide(replace(CONV, somebody_waits=True), FREE).priority == Priority.URGENT
    assert decide(replace(CONV, related=True), FREE).priority == Priority.LOW


def test_without_a_worker_a_miss_waits_and_the_reason_names_the_capability() -> None:
    decision = decide(CONV, replace(FREE, workers=0))
    assert decision.verdict == "wait"
    assert "cpu.zen3" in decision.reason


def test_too_large_for_every_worker_is_discarded_with_both_sizes() -> None:
    decision = decide(replace(CONV, peak_bytes=64 * 2.0**30), FREE)
    assert decision.verdict == "discard"
    assert "64.0 GiB" in decision.reason
    assert "8.0" in decision.reason


def test_a_paused_queue_postpones_with_the_pause_as_reason() -> None:
    decision = decide(CONV, replace(FREE, paused="The queue * is paused: maintenance."))
    assert (decision.verdict, decision.reason) == ("postpone", "The queue * is paused: maintenance.")


def test_a_long_backlog_postpones_related_operators_only() -> None:
    busy = replace(FREE, backlog_s=3601.0, max_backlog_s=3600.0)
    assert decide(CONV, busy).verdict == "promote"
    assert decide(replace(CONV, related=True), busy).verdict == "postpone"
    assert decide(replace(CONV, related=True), replace(busy, backlog_s=36.0)).verdict == "promote"


def test_old_related_operators_of_little_worth_are_discarded() -> None:
    tiny = Ask("Relu", flops=10, bytes_moved=80, peak_bytes=80, related=True, age_s=2 * 86400)
    assert decide(tiny, FREE).verdict == "discard"
    assert decide(replace(tiny, age_s=60), FREE).verdict == "promote"
    assert decide(replace(tiny, related=False), FREE).verdict == "promote"


def test_tuning_goes_where_time_is_spent() -> None:
    small = tuning_slices("Conv", default_us=50, calls=1, most=4)
    large = tuning_slices("Conv", default_us=5000, calls=10, most=4)
    assert 0 < small < large


def test_trivial_operators_are_not_tuned() -> None:
    assert tuning_slices("Reshape", default_us=900, calls=9, most=4) == 0
    assert tuning_slices("Reshape+Transpose", default_us=900, calls=9, most=4) == 0
    assert tuning_slices("Reshape+Conv", default_us=900, calls=9, most=4) > 0
    assert tuning_slices("Relu", default_us=4, calls=9, most=4) == 0
    assert tuning_slices("Conv", default_us=5000, calls=10, most=0) == 0


def test_a_run_takes_its_arithmetic_or_its_memory_and_the_call() -> None:
    assert estimate_us(3 * 50_000.0, 10_000.0) == 3 + 5
    assert estimate_us(50_000.0, 2 * 10_000.0) == 2 + 5


@pytest.mark.parametrize(
    ("ask", "situation", "reason"),
    [
        (CONV, FREE, ""),
        (
            replace(CONV, peak_bytes=64 * 2.0**30),
            FREE,
            "It needs 64.0 GiB of memory; the largest worker has 8.0 to give.",
        ),
        (CONV, replace(FREE, workers=0), "No live worker serves this target (cpu.zen3)."),
        (CONV, replace(FREE, paused="Paused."), "Paused."),
        (
            Ask("Relu", flops=10, bytes_moved=80, peak_bytes=80, related=True, age_s=2 * 86400),
            FREE,
            "Only ever named as related, long ago, and worth too little.",
        ),
        (
            replace(CONV, related=True),
            replace(FREE, backlog_s=12_500_000.0),
            "Named as related only, and 3472.2 h of work wait before it.",
        ),
    ],
)
def test_every_decision_says_its_worth_and_in_one_sentence_why(
    ask: Ask, situation: Situation, reason: str
) -> None:
    decision = decide(ask, situation)
    assert (decision.worth, decision.reason) == (worth_of_miss_us(ask, {}), reason)


def test_what_just_fits_is_promoted() -> None:
    assert decide(replace(CONV, peak_bytes=8 * 2.0**30), FREE).verdict == "promote"
    assert decide(replace(CONV, peak_bytes=1e15), replace(FREE, memory_bytes=0)).verdict == "promote"
    related = replace(CONV, related=True, age_s=2 * 86400)
    assert decide(related, replace(FREE, backlog_s=100.0, max_backlog_s=100.0)).verdict == "promote"
    assert decide(related, replace(FREE, backlog_s=100.0, max_backlog_s=99.0)).verdict == "postpone"
    worth = worth_of_miss_us(related, {})
    assert decide(related, replace(FREE, floor_us=worth)).verdict == "promote"
    assert decide(related, replace(FREE, floor_us=2 * worth)).verdict == "discard"
    assert decide(related, replace(FREE, floor_us=2 * worth, old_s=related.age_s)).verdict == "promote"


@pytest.mark.parametrize(
    ("default_us", "calls", "most", "slices"),
    [
        (9.99, 1000, 4, 0), (10, 1, 4, 2), (10, 9.9, 4, 2), (10, 10, 4, 4), (100, 1, 4, 4), (1999, 1, 4, 4),
        (200, 10, 4, 8), (2000, 1, 4, 8), (19_999, 1, 4, 8), (20_000, 1, 4, 12), (2e6, 9, 4, 12),
        (10, 1, 1, 1), (2000, 1, 1, 2), (2000, 1, 0, 0),
    ],
)  # fmt: skip
def test_slices_go_by_the_time_of_all_calls(default_us: float, calls: float, most: int, slices: int) -> None:
    assert tuning_slices("Conv", default_us, calls, most) == slices


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.floats(0.0, 1e12),
    st.floats(0.0, 8 * 2.0**30),
    st.floats(0.0, 1e15),
    st.booleans(),
    st.integers(1, 100),
)
def test_a_directly_asked_miss_is_never_refused_for_load(
    backlog_s: float, peak_bytes: float, flops: float, waits: bool, workers: int
) -> None:
    """Whatever waits before it, as long as it fits into memory."""
    asked = replace(CONV, peak_bytes=peak_bytes, flops=flops, somebody_waits=waits)
    busy = replace(FREE, backlog_s=backlog_s, workers=workers, max_backlog_s=0.0)
    assert decide(asked, busy).verdict == "promote"
