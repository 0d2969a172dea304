"""The contest's first half: a real service explores the operators, as it would for any job that asks."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.contest.sample import Entrant
from dashboard.run.stack import Stack
from opatlas.client import Client
from opatlas.identity import detect_target

BATCH = 1024  # operators per lookup, the service's bound
WARM_WAIT_S = 300.0
Say = Callable[[str], None]


def explore(entrants: Sequence[Entrant], home: Path, budget_s: float, say: Say) -> float:
    """Explore until all explorations have ended or the budget is spent; returns the seconds it took.

    On kept state it goes on where it stopped. Hand-written kernels take part, once they were approved.
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
        started = time.monotonic()
        with Client(stack.url, secret, job="contest", target=target) as client:
            for start in range(0, len(entrants), BATCH):
                part = entrants[start : start + BATCH]
                client.lookup([one.operator for one in part], calls=[float(one.calls) for one in part])
        _watch(entrants, started, budget_s, stack, Jury(say), say)
        spent_s = time.monotonic() - started
        queues.pause("*", reason="the contest's budget is spent")
        stack.wait_for(lambda: not _running(), 120.0, "running slices to end")
    return spent_s


class Jury:
    """The example kernels' way in: one user submits them, another approves what has evidence."""

    def __init__(self, say: Say) -> None:
        from django.contrib.auth import get_user_model

        from tuning.kernels.shipped import submit_examples

        users = get_user_model().objects
        author, _ = users.get_or_create(username="contest-author")
        self.decider, _ = users.get_or_create(username="contest-decider", defaults={"is_superuser": True})
        self.say = say
        say(f"{len(submit_examples(author))} hand-written kernels are submitted.")

    def decide(self) -> bool:
        """Approve what awaits it; whether evidence is still being gathered."""
        from tuning.kernels.models import EvaluationState, KernelEvaluation
        from tuning.kernels.shipped import approve_all

        for version in approve_all(self.decider, reason="Right, and worth a place in the contest."):
            self.say(f"  {version} is approved.")
        gathering = [EvaluationState.QUEUED, EvaluationState.RUNNING]
        return KernelEvaluation.objects.filter(state__in=gathering).exists()


def _watch(
    entrants: Sequence[Entrant], started: float, budget_s: float, stack: Stack, jury: Jury, say: Say
) -> None:
    from django.db.models import Q

    from catalog.models import Miss, MissState
    from tuning.models import Exploration, State

    keys = [one.operator.key for one in entrants]
    ours = Exploration.objects.filter(operator__key__in=keys)
    said = ""
    while (spent_s := time.monotonic() - started) < budget_s:
        stack.check_alive()
        waiting = Miss.objects.filter(operator__key__in=keys, state=MissState.WAITING).exists()
        ended = not ours.filter(Q(state__in=(State.QUEUED, State.RUNNING)) | ~Q(pending_routes="")).exists()
        if not jury.decide() and not waiting and ended:
            return
        line = _progress(ours, len(keys))
        if line != said:
            say(f"  {spent_s:5.0f} s  {line}")
            said = line
        time.sleep(5.0)
    say(f"The budget of {budget_s:.0f} s is spent.")


def _progress(ours: Any, total: int) -> str:
    from tuning.models import Stage, State

    rows = list(ours.values_list("state", "stage", "first_result_at", "tuning_slices"))
    first = sum(1 for row in rows if row[2])
    contested = sum(1 for state, stage, _, _ in rows if stage >= Stage.TUNE or state == State.DONE)
    slices = sum(row[3] for row in rows)
    return f"{first}/{total} first results, {contested} contested, {slices} tuning slices"


def _warm() -> bool:
    from django.utils import timezone

    from tuning.models import Worker

    return Worker.objects.filter(warm=True, stopped_at=None, target__served_until__gt=timezone.now()).exists()


def _running() -> bool:
    from tuning.models import Exploration, State

    return Exploration.objects.filter(state=State.RUNNING).exists()
