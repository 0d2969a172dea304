"""On which operators a version is evaluated: the example, then those that are called most."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from django.db.models.functions import Now

from catalog.models import SHARED, Target
from catalog.registry import read_graph, register_setting
from catalog.steps import each, held_back
from opatlas import identity
from tuning.doorbell.bell import bell
from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelVersion, VersionState
from tuning.models import Exploration
from tuning.routes.manual.matching import parse_pattern
from tuning.routes.manual.submitted import runs_on

MOST_EVALUATIONS = 3
PLANNING = "planning a kernel's evaluations"
_MOST_LOOKED_AT = 20_000  # explorations, the most called first

WAITS = (
    "No operator in the catalogue matches the pattern yet: it is evaluated as soon as one does. "
    "Name an example operator to have it evaluated at once."
)

NO_DEVICE = (
    "No processor or GPU that is served has all that its language and flags ask for: it waits for one."
)

Place = tuple[int, int, int]  # operator, target, setting


def matching_explorations(version: KernelVersion) -> Iterator[Exploration]:
    """Explorations of operators that a version serves, the most called first."""
    pattern = parse_pattern(version.pattern)
    rows = Exploration.objects.filter(operator__op_type__in=[_shown(op) for op in pattern.ops])
    for row in rows.select_related("operator", "target").order_by("-calls", "pk").iterator(chunk_size=200):
        operator = read_graph(row.operator.graph)
        if operator is not None and not pattern.refuses(operator):
            yield row


def plan(version: KernelVersion) -> int:
    """Queue a version's evaluations; where nothing matches, say so and wait. Returns how many."""
    newest = _newest()
    language, flags = version.language, version.flags
    targets = [target for target in _targets() if runs_on(language, flags, _hardware(target))]
    places = list(_places(version, targets))
    for operator, target, setting in places:
        KernelEvaluation.objects.get_or_create(
            version=version, operator_id=operator, target_id=target, setting_id=setting
        )
    reason = "" if places else WAITS if targets else NO_DEVICE
    KernelVersion.objects.filter(pk=version.pk).update(explorations_seen=newest, state_reason=reason)
    version.explorations_seen, version.state_reason = newest, reason
    return len(places)


def plan_waiting() -> int:
    """Look again for those that nothing matched, where there are new explorations; returns how many began."""
    newest = _newest()
    waiting = KernelVersion.objects.filter(
        state=VersionState.SUBMITTED, evaluations=None, explorations_seen__lt=newest
    )
    waiting = waiting.exclude(pk__in=held_back(PLANNING))
    return sum(each(PLANNING, waiting[:50], lambda version: plan(version) > 0))


def ring_for(version: KernelVersion) -> None:
    """Wake the workers that can evaluate it; call it after the commit."""
    waiting = KernelEvaluation.objects.filter(version=version, state=EvaluationState.QUEUED)
    bell.ring(set(waiting.values_list("target__capability", flat=True)))


def _newest() -> int:
    return Exploration.objects.order_by("-pk").values_list("pk", flat=True).first() or 0


def _targets() -> list[Target]:
    """Hardware that workers serve now; where none does, all that there is."""
    served = Target.objects.filter(served_until__gt=Now()).order_by("-served_until")
    return list(served[:100]) or list(Target.objects.order_by("-pk")[:100])


def _places(version: KernelVersion, targets: Sequence[Target]) -> Iterator[Place]:
    allowed = {target.pk for target in targets}
    chosen: dict[int, Place] = {}
    if version.example is not None:
        for place in _places_of_example(version, targets):
            chosen.setdefault(place[0], place)
    for looked_at, row in enumerate(matching_explorations(version) if allowed else ()):
        if len(chosen) >= MOST_EVALUATIONS or looked_at >= _MOST_LOOKED_AT:
            break
        if row.target_id in allowed and _visible(row, version):
            chosen.setdefault(row.operator_id, (row.operator_id, row.target_id, row.setting_id))
    yield from chosen.values()


def _places_of_example(version: KernelVersion, targets: Sequence[Target]) -> Iterator[Place]:
    """Where the example is explored already, else the target that was served last, with its default
    setting."""
    assert version.example is not None
    allowed = {target.pk for target in targets}
    explored = Exploration.objects.filter(operator=version.example, target__in=allowed)
    for row in explored.order_by("-calls", "pk")[:20]:
        if _visible(row, version):
            yield row.operator_id, row.target_id, row.setting_id
            return
    for target in targets[:1]:
        setting = register_setting(identity.default_setting(_hardware(target)))
        yield version.example.pk, target.pk, setting.pk


def _shown(op: str) -> str:
    """An operator type as the catalogue shortens it: beyond four nodes by its first three."""
    ops = op.split("+")
    return "+".join(ops) if len(ops) <= 4 else "+".join(ops[:3]) + f"+{len(ops) - 3} more"


def _visible(row: Exploration, version: KernelVersion) -> bool:
    return row.scope == SHARED or row.owner_id == version.kernel.organisation_id


def _hardware(target: Any) -> identity.Target:
    return identity.Target.from_json(target.description)
