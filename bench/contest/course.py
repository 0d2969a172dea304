"""The contest's first half: a real service explores the operators, as it would for any job that asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.contest.sample import Entrant
from dashboard.run.stack import Stack
from opatlas.client import RestClient
from opatlas.identity import detect_target

BATCH = 1024  # operators per lookup, the service's bound
WARM_WAIT_S, PLANNED_S, KERNELS_WAIT_S = 300.0, 15.0, 900.0
LOOK_S = 2.0
Say = Callable[[str], None]


@dataclass
class ContestProgress:
    """How far exploring has come. Seconds are those in which a warm worker was there."""

    spent_s: float = 0.0
    first: int = 0  # operators with a first result,
    contested: int = 0  # and those whose contest has ended,
    contested_by_s: float = 0.0  # the last of them then
    tuning_slices: int = 0
    ended: bool = False  # nothing is left to explore

    @property
    def progress(self) -> str:
        found = f"{self.first} first results, {self.contested} contested"
        return f"{found}, {self.tuning_slices} tuning slices"


Keep = Callable[[ContestProgress], None]


def explore(
    entrants: Sequence[Entrant], home: Path, budget_s: float, explored: ContestProgress, keep: Keep, say: Say
) -> None:
    """Explore until all explorations have ended or the budget is spent.

    On kept state it goes on where it stopped: ``explored`` says how far it had come, is moved on and kept all
    the while. Hand-written kernels are evaluated and approved meanwhile, which the clock leaves out, and take
    part.
    """
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation
    from tuning.queue import steering as queues

    organisation = default_organisation()
    _, secret = create_api_key(organisation, "contest", ["lookup"])
    target = detect_target()
    # One worker: a second would disturb it, since what it does between its measurements is work too.
    with Stack(workers=1, logs=home / "logs") as stack:
        stack.wait_for(_warm, WARM_WAIT_S, "a warm worker")
        queues.resume("*")
        say(f"Exploring {len(entrants)} operators; pages while it runs: {stack.url}")
        with RestClient(stack.url, secret, job="contest", target=target) as client:
            before_s, began = explored.spent_s, time.monotonic()
            for start in range(0, len(entrants), BATCH):
                part = entrants[start : start + BATCH]
                client.lookup([one.operator for one in part], calls=[float(one.calls) for one in part])
        jury = Jury(say)
        stack.wait_for(jury.is_done, KERNELS_WAIT_S, "the hand-written kernels' evidence", LOOK_S)
        evaluating_s = jury.evaluating_s

        def look() -> None:
            explored.spent_s = before_s + time.monotonic() - began - evaluating_s
            ours.count(explored)
            keep(explored)

        ours, said = _Ours(entrants), ""
        while not explored.ended and explored.spent_s < budget_s:
            stack.check_alive()
            explored.ended = ours.ended
            look()
            if explored.progress != said:
                said = explored.progress
                say(f"  {explored.spent_s:5.0f} s  {said}")
            if not explored.ended:
                time.sleep(min(LOOK_S, max(0.0, budget_s - explored.spent_s)))
        queues.pause("*", reason="the contest's budget is spent")
        stack.wait_for(lambda: not _running(), 120.0, "running slices to end")
        look()


class Jury:
    """The example kernels' way in: one user submits them, another approves what has evidence."""

    def __init__(self, say: Say) -> None:
        from django.contrib.auth import get_user_model
        from django.utils import timezone

        from tuning.kernels.shipped import submit_examples

        users = get_user_model().objects
        self.author, _ = users.get_or_create(username="contest-author")
        self.decider, _ = users.get_or_create(username="contest-decider", defaults={"is_superuser": True})
        self.say, self.since, self.began_at = say, time.monotonic(), timezone.now()
        say(f"{len(submit_examples(self.author))} hand-written kernels are submitted.")

    def is_done(self) -> bool:
        """Approve what awaits it, ask again for what was disturbed; whether all have the evidence that they
        can have."""
        from tuning.kernels.again import evaluate_again, why_not_again
        from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelVersion, VersionState
        from tuning.kernels.shipped import approve_all

        for version in approve_all(self.decider, reason="Right, and worth a place in the contest."):
            self.say(f"  {version} is approved.")
        for version in KernelVersion.objects.filter(state=VersionState.NOISY, submitted_by=self.author):
            if not why_not_again(version):
                self.say(f"  {version} was disturbed, and is evaluated again.")
                evaluate_again(version, user=self.author)
        gathering = [EvaluationState.QUEUED, EvaluationState.RUNNING]
        # The courier plans evaluations soon after it has seen operators that kernels match, if there are any.
        planned = time.monotonic() - self.since > PLANNED_S or KernelEvaluation.objects.exists()
        return planned and not KernelEvaluation.objects.filter(state__in=gathering).exists()

    @property
    def evaluating_s(self) -> float:
        """What the worker spent on kernels since they were submitted, and not on exploring."""
        from tuning.kernels.models import KernelTry

        tries = KernelTry.objects.filter(started_at__gte=self.began_at)
        return sum((one.ended_at - one.started_at).total_seconds() for one in tries if one.started_at)


class _Ours:
    """The explorations of the contest's operators."""

    def __init__(self, entrants: Sequence[Entrant]) -> None:
        from tuning.models import Exploration

        self.keys = [one.operator.key for one in entrants]
        self.rows = Exploration.objects.filter(operator__key__in=self.keys)

    def count(self, explored: ContestProgress) -> None:
        from tuning.models import Stage, State

        rows = list(self.rows.values_list("state", "stage", "first_result_at", "tuning_slices"))
        contested = sum(1 for state, stage, _, _ in rows if stage >= Stage.TUNE or state == State.DONE)
        if contested > explored.contested:
            explored.contested_by_s = explored.spent_s
        explored.first = sum(1 for row in rows if row[2])
        explored.contested = contested
        explored.tuning_slices = sum(row[3] for row in rows)

    @property
    def ended(self) -> bool:
        from django.db.models import Q

        from catalog.models import Miss, MissState
        from tuning.models import State

        waiting = Miss.objects.filter(operator__key__in=self.keys, state=MissState.WAITING).exists()
        going_on = Q(state__in=(State.QUEUED, State.RUNNING)) | ~Q(pending_routes="")
        return not waiting and not self.rows.filter(going_on).exists()


def _warm() -> bool:
    from django.utils import timezone

    from tuning.models import Worker

    return Worker.objects.filter(warm=True, stopped_at=None, target__served_until__gt=timezone.now()).exists()


def _running() -> bool:
    from tuning.models import Exploration, State

    return Exploration.objects.filter(state=State.RUNNING).exists()
