"""Several artifacts of one operator in a single race, each in a fresh process: figures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from tuning.measure.bench import Bench, Limits, LiveBench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.subject import Subject
from tuning.measure.timing.timer import Effort, race
from tuning.routes.base import BuiltArtifact

DEFAULT_MAY_BREAK = 3  # times

LINE_UP = Effort(seconds=0.5, rounds=7, stop_losers=False)


def line_up(
    bench: Bench, artifacts: Sequence[BuiltArtifact], effort: Effort = LINE_UP, limits: Limits | None = None
) -> list[Outcome]:
    """Check every artifact, then time all of them in turns with the default, on fresh inputs.

    Returns an outcome for each, in order; ``ratio_to_default`` of all holds for the same rounds. What fails
    (is wrong, does not load, breaks on the way) gets its status, and the others run without it.
    """
    limits = limits or Limits()
    if not isinstance(bench, LiveBench) or not bench.default.ok:
        return [bench.no_default() for _ in artifacts]
    if reason := bench.renew():
        return [Outcome(Status.UNSUPPORTED, reason) for _ in artifacts]
    with bench.machine_lock(), ExitStack() as stack:
        subjects: dict[int, Subject] = {}
        outcomes: dict[int, Outcome] = {}
        for number, artifact in enumerate(artifacts):
            subject = bench.new_subject(artifact, limits)
            stack.callback(subject.close)
            try:
                bench.ready(subject)
                subjects[number] = subject
            except (ChildFailed, OSError) as failed:
                outcomes[number] = _failure(subject, failed)
        for subject in subjects.values():
            subject.renew_time(limits.run_s)  # it waited for the others
        outcomes |= _race(bench, subjects, effort)
    return [outcomes[number] for number in range(len(artifacts))]


def _race(bench: LiveBench, subjects: dict[int, Subject], effort: Effort) -> dict[int, Outcome]:
    """Race until nobody breaks; who does is out."""
    outcomes: dict[int, Outcome] = {}
    for _ in range(len(subjects) + DEFAULT_MAY_BREAK):
        if not subjects:
            return outcomes
        try:
            default = bench.live_default()
        except ChildFailed:
            continue
        runners = [default.runner, *(subject.runner for subject in subjects.values())]
        try:
            result = race([one for one in runners if one is not None], effort, bench.flush())
        except ChildFailed as failed:
            broken = next((n for n, one in subjects.items() if one.runner is failed.culprit), None)
            if broken is None:
                bench.drop_default()
            else:
                outcomes[broken] = _failure(subjects.pop(broken), failed)
            continue
        for (number, subject), timing in zip(subjects.items(), result.timings, strict=True):
            outcomes[number] = subject.outcome(result.status, result.detail, timing=timing)
        return outcomes
    noisy = Outcome(Status.NOISY, "the default broke again and again while this was timed")
    return outcomes | dict.fromkeys(subjects, noisy)


def _failure(subject: Subject, failed: Exception) -> Outcome:
    if isinstance(failed, ChildFailed):
        return subject.outcome(failed.status, failed.detail)
    return subject.outcome(Status.LOAD_FAILED, f"its files cannot be read: {failed}")
