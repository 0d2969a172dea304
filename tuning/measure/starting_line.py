"""Who takes part in a race of many: all started, and whoever breaks on the way is out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager

from tuning.measure.bench import Limits, LiveBench
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox.process import ChildFailed
from tuning.measure.subject import Subject
from tuning.routes.base import BuiltArtifact

DEFAULT_MAY_BREAK = 3  # times


@contextmanager
def checked(
    bench: LiveBench, artifacts: Iterable[tuple[int, BuiltArtifact]], limits: Limits
) -> Iterator[tuple[dict[int, Subject], dict[int, Outcome]]]:
    """All of them in processes of their own and checked side by side, each as soon as it comes; and what came
    of those that failed."""
    every: dict[int, Subject] = {}
    begun: dict[int, Future[ChildFailed | OSError | None]] = {}
    try:
        for number, artifact in artifacts:
            every[number] = bench.new_subject(artifact, limits)
            begun[number] = bench.aside(bench.check, every[number])
        failed = {
            number: failure(every[number], error) for number, one in begun.items() if (error := one.result())
        }
        yield {number: subject for number, subject in every.items() if number not in failed}, failed
    finally:
        wait(begun.values())
        wait([bench.aside(Subject.close, subject) for subject in every.values()])


def warmed(bench: LiveBench, subjects: dict[int, Subject]) -> dict[int, Outcome]:
    """Warm them up one after the other, ready to be timed; those that fail are taken out of ``subjects``, and
    named with what came of it."""
    failed: dict[int, Outcome] = {}
    for number, subject in list(subjects.items()):
        try:
            bench.warm(subject)
        except (ChildFailed, OSError) as error:
            failed[number] = failure(subjects.pop(number), error)
    return failed


def race_on(
    bench: LiveBench, subjects: dict[int, Subject], race: Callable[[Subject], None]
) -> dict[int, Outcome]:
    """Race with the default until nobody breaks; who does is taken out of ``subjects`` and named with what
    came of it. ``race`` may take others out itself."""
    failed: dict[int, Outcome] = {}
    for _ in range(len(subjects) + DEFAULT_MAY_BREAK):
        if not subjects:
            return failed
        for subject in subjects.values():
            subject.renew_time()  # it waited for the others
        try:
            race(bench.live_default())
            return failed
        except ChildFailed as error:
            broken = next((n for n, one in subjects.items() if one.runner is error.culprit), None)
            if broken is None:
                bench.drop_default()
            else:
                failed[broken] = failure(subjects.pop(broken), error)
    noisy = Outcome(Status.NOISY, "the default broke again and again while this was timed")
    return failed | dict.fromkeys(subjects, noisy)


def failure(subject: Subject, failed: Exception) -> Outcome:
    """What an exception says of who was on the bench."""
    if isinstance(failed, ChildFailed):
        return subject.outcome(failed.status, failed.detail)
    return subject.outcome(Status.LOAD_FAILED, f"its files cannot be read: {failed}")
