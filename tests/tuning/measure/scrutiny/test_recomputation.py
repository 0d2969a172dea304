"""Batches on new values: what counts, what accuses, what is drawn for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opatlas.noise import SITTINGS
from tests.tuning.measure.kernels import relu_operator
from tuning.measure.bench import LiveBench
from tuning.measure.judging.check import Reference
from tuning.measure.judging.parts import OutputPart
from tuning.measure.outcome import Status
from tuning.measure.sandbox.process import ChildFailed, Took
from tuning.measure.scrutiny import recomputation
from tuning.measure.scrutiny.fresh_sets import WIDE, FreshSets
from tuning.measure.scrutiny.recomputation import OVERSPENT, Batches
from tuning.measure.subject import Findings, Subject

HONEST = Took(elapsed_ns=50_000, first_ns=900_000, others_ns=0, answer_ns=60_000)
LATE = Took(elapsed_ns=40_000, first_ns=900_000, others_ns=0, answer_ns=9_000_000)
BUSY = Took(elapsed_ns=40_000, first_ns=27_000_000, others_ns=0, answer_ns=60_000)
HELPED = Took(elapsed_ns=40_000, first_ns=900_000, others_ns=800_000, answer_ns=60_000)


def batches(threads: int = 1) -> Batches:
    specimen = SimpleNamespace(threads=threads, own=[{0: np.zeros(4096, np.float32)}])
    answers = SimpleNamespace(output_slots=[[SimpleNamespace(nbytes=16384)]])
    subject: Any = SimpleNamespace(
        specimen=specimen, answers=answers, compiled=True, live=SimpleNamespace(pause=lambda: None)
    )
    return Batches(subject, known_us=5.0, handshake_ns=10_000.0)


@pytest.mark.parametrize("took", [LATE, BUSY], ids=["late", "busy"])
def test_a_disturbed_batch_accuses_nobody_and_counts_for_nothing(took: Took) -> None:
    """Honest kernels were seen to do both on a busy host: the parent, or the child, had no CPU meanwhile."""
    made = batches()
    for _ in range(4 * OVERSPENT):
        made.add(took, 2, quiet=False)
    assert (made.counted, made.least_ns) == (0, float("inf"))
    made.add(HONEST, 2, quiet=True)
    assert (made.counted, made.least_ns) == (1, HONEST.elapsed_ns)


@pytest.mark.parametrize(
    ("took", "quiet", "words"),
    [(LATE, True, "answered"), (BUSY, True, "beside its runs"), (HELPED, False, "other threads")],
    ids=["late", "busy", "helped"],
)
def test_work_that_no_time_shows_accuses(took: Took, quiet: bool, words: str) -> None:
    made = batches()
    for _ in range(OVERSPENT - 1):
        made.add(took, 2, quiet=quiet)
    with pytest.raises(ChildFailed, match=words) as failed:
        made.add(took, 2, quiet=quiet)
    assert failed.value.status is Status.CHEATED


def test_a_setting_with_threads_may_use_them() -> None:
    made = batches(threads=2)
    for _ in range(2 * OVERSPENT):
        made.add(HELPED, 2, quiet=True)
        made.add(replace(BUSY, others_ns=HELPED.others_ns), 2, quiet=False)
    assert made.counted == 2 * OVERSPENT


class Drawn:
    """References that are not needed here; how many sets were drawn, at each time."""

    def __init__(self) -> None:
        self.times: list[int] = []

    def __call__(
        self, sets: Sequence[Mapping[int, np.ndarray]], part: OutputPart | None
    ) -> list[list[Reference]]:
        self.times.append(len(sets))
        return [[] for _ in sets]


def firsts(sets: Sequence[Any]) -> list[bytes]:
    return [one.spans[0].tobytes() for one in sets]


def test_no_set_is_given_twice_where_what_was_used_is_forgotten() -> None:
    fresh = FreshSets(relu_operator(), Drawn())
    seen: set[bytes] = set()
    for _ in range(5):
        fresh.forget_used()
        fresh.draw_ahead(1)
        given = firsts([*fresh.everyday(0), *fresh.everyday(1), *fresh.everyday(2), *fresh.wide()])
        assert len(given) == 3 * fresh.batch.calls + WIDE
        assert not seen & set(given) and len(set(given)) == len(given)
        seen.update(given)


def test_references_are_asked_for_seldom() -> None:
    """Of one submitted artifact: a contest, and on other constants three sittings; three batches each."""
    fresh = FreshSets(relu_operator(), made := Drawn())
    for processes in (1, 3):
        fresh.forget_all()
        for _ in range(processes):
            fresh.forget_used()
            fresh.draw_ahead(processes)
            for number in range(3):
                fresh.everyday(number)
            assert len(fresh.wide()) == WIDE
    everyday = fresh.batch.rounds * fresh.batch.calls
    assert made.times == [everyday + WIDE, everyday + 3 * WIDE, everyday]


def test_nothing_is_left_whose_references_are_of_other_constants() -> None:
    fresh = FreshSets(relu_operator(), Drawn())
    fresh.draw_ahead(4)
    before = set(firsts([*fresh.everyday(0), *fresh.wide()]))
    fresh.draw_ahead(4)
    fresh.forget_all()
    fresh.draw_ahead(4)
    assert not before & set(firsts([*fresh.everyday(0), *fresh.everyday(1), *fresh.wide()]))


def test_a_bench_that_renews_its_constants_draws_all_anew() -> None:
    bench: Any = LiveBench.__new__(LiveBench)
    bench._fresh = FreshSets(relu_operator(), Drawn())
    bench._specimen = SimpleNamespace(renew=lambda: None)
    bench._equipment = SimpleNamespace(lock=SimpleNamespace(building=nullcontext))
    bench._compute_references, bench.drop_default = lambda: "", lambda: None
    bench._fresh.draw_ahead(1)
    before = set(firsts(bench._fresh.everyday(0)))
    bench._fresh.everyday(1)
    bench.renew()
    assert not before & set(firsts(bench._fresh.everyday(0)))
    assert bench._processes == SITTINGS


def test_only_its_own_runs_are_a_candidates_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy host makes drawing, waiting and the default slow: nobody used up his time by that."""
    clock = SimpleNamespace(s=0.0)

    def takes(seconds: float) -> Any:
        def work(*_: Any) -> list[Any]:
            clock.s += seconds
            return []

        return work

    monkeypatch.setattr("tuning.measure.subject.time.monotonic", lambda: clock.s)
    monkeypatch.setattr(recomputation, "_run_batch", takes(0.25))
    monkeypatch.setattr(recomputation, "_controlled", takes(30.0))
    monkeypatch.setattr(recomputation, "_usual", lambda *_: (1.0, -6.0))
    subject: Any = Subject.__new__(Subject)
    subject.specimen, subject.evidence = batches().subject.specimen, Findings()
    subject.deadline, subject.child = 20.0, batches().subject.live
    of = Batches(subject, 5.0, 0.0, least_ns=1e4)
    fresh: Any = SimpleNamespace(batch=SimpleNamespace(calls=1, heavy=False), everyday=takes(60.0))
    assert recomputation._timed(of, of, fresh) is None
    assert subject.deadline - clock.s == 20.0 - 0.25 * recomputation.MOST_BATCHES


@pytest.mark.parametrize("quiet", [False, True], ids=["nobody was left alone", "the default was"])
def test_never_left_alone_is_its_own_doing_only_where_the_default_was(
    monkeypatch: pytest.MonkeyPatch, quiet: bool
) -> None:
    """A small product on two threads took 202 us a run on new values, 1 us on known ones, on a host with
    twenty processes for two CPUs."""
    slow, usual = batches(threads=2), batches(threads=2)
    slow.subject.off_the_clock, slow.subject.evidence = nullcontext, Findings()

    def run_batch(one: Batches, _: Any) -> None:
        took = replace(HONEST, elapsed_ns=3_000_000 if one is slow else 10_000)
        one.add(took, 1, quiet=quiet and one is usual)

    monkeypatch.setattr(recomputation, "_run_batch", run_batch)
    monkeypatch.setattr(recomputation, "_controlled", run_batch)
    fresh: Any = SimpleNamespace(batch=SimpleNamespace(calls=1, heavy=False), everyday=lambda number: [])
    if not quiet:
        assert recomputation._timed(slow, usual, fresh) is None
        return
    with pytest.raises(ChildFailed, match="a run on new values takes") as failed:
        recomputation._timed(slow, usual, fresh)
    assert failed.value.status is Status.CHEATED


@pytest.mark.parametrize("takes_us, counts_us", [(104.0, 100.0), (140.0, 134.0)])
def test_what_new_values_take_beyond_the_usual_counts(
    monkeypatch: pytest.MonkeyPatch, takes_us: float, counts_us: float
) -> None:
    one, usual = replace(batches(), known_us=100.0), replace(batches(), known_us=100.0)
    one.subject.off_the_clock, one.subject.evidence = nullcontext, Findings()

    def run_batch(of: Batches, _: Any) -> None:
        took = replace(HONEST, elapsed_ns=int(1e3 * (takes_us if of is one else 100.0)))
        of.add(took, 1, quiet=True)

    monkeypatch.setattr(recomputation, "_run_batch", run_batch)
    monkeypatch.setattr(recomputation, "_controlled", run_batch)
    fresh: Any = SimpleNamespace(batch=SimpleNamespace(calls=1, heavy=False), everyday=lambda number: [])
    assert recomputation._timed(one, usual, fresh) == pytest.approx(counts_us)
