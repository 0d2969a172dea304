"""Another evaluation, asked for by the submitter, where nothing was found against the kernel."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Count, F

from tuning.kernels.caught import CaughtBefore, why_refused
from tuning.kernels.models import EvaluationState, KernelVersion, VersionState
from tuning.kernels.planning import ring_for
from tuning.kernels.states import KernelNotAllowed, NotInThatState, move
from tuning.kernels.submitting import may_edit
from tuning.kernels.verdicts import FOR, UNTIMED

MOST_TRIES = 12
"""Of one evaluation, in all: what stays noisy that long needs another machine, not another try."""


def why_not_again(version: KernelVersion) -> str:
    """Empty where a version may be evaluated again, else the sentence that says why not."""
    if version.state not in (VersionState.NOISY, VersionState.FAILED):
        return f"Only what could not be timed is evaluated again; {version.label} is {version.state}."
    statuses = set(version.tries.values_list("status", flat=True))
    if found := sorted(statuses - {*FOR, *UNTIMED}):
        return f"It was found {', '.join(found)}: change the source, and submit another version."
    if version.state == VersionState.FAILED and not statuses & set(UNTIMED):
        return "It was timed already: change the source, and submit another version."
    counted = version.evaluations.annotate(count=Count("tried"))
    if counted.filter(count__gte=MOST_TRIES).exists():
        return f"It was tried {MOST_TRIES} times: submit it again where a quieter machine serves."
    return ""


def evaluate_again(version: KernelVersion, *, user: User, reason: str = "") -> KernelVersion:
    """Queue what was not timed once more. What was found before stays, and is shown."""
    if why_not := may_edit(user, version.kernel):
        raise KernelNotAllowed(why_not)
    if refused := why_refused(version.source_sha256, version.tokens_sha256):
        raise CaughtBefore(refused)
    with transaction.atomic():
        if why_not := why_not_again(version):
            raise NotInThatState(why_not)
        before = (VersionState.NOISY, VersionState.FAILED)
        why = "another evaluation was asked for" + (f": {reason}" if reason else "")
        if not move(version, before, VersionState.SUBMITTED, who=user, reason=why):
            raise NotInThatState(f"{version.label} is evaluated already.")
        version.evaluations.exclude(state=EvaluationState.DONE, status__in=FOR).update(
            state=EvaluationState.QUEUED,
            tries=0,
            fence=F("fence") + 1,
            finished_at=None,
            detail="",
            status="",
        )
    ring_for(version)
    return version
