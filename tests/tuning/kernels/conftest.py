"""People, an operator that is explored, and kernels as a worker would leave them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from catalog.registry import default_organisation, register_operator, register_setting
from opatlas.identity import Setting, parse_operator
from tuning.kernels import services
from tuning.kernels.dossier import Dossier
from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelVersion, VersionState
from tuning.kernels.services import Submission, submit
from tuning.models import Exploration, State

SOURCE = '#include "opatlas_operator.h"\nint opatlas_run(void) { return 0; }\n'
PATTERN = {"op": "Softmax", "inputs": [{"dtype": "float32", "contiguous": True}]}


def softmax(size: int = 64) -> Any:
    return parse_operator({"op": "Softmax", "inputs": [{"shape": [8, size], "dtype": "float32"}]})


@pytest.fixture
def people(db: None) -> dict[str, Any]:
    """ada submits; bob and carol may decide; dan may not."""
    from django.contrib.auth.models import Permission, User

    found = {name: User.objects.create_user(name) for name in ("ada", "bob", "carol", "dan")}
    for name in ("bob", "carol"):
        found[name].user_permissions.add(Permission.objects.get(codename="decide"))
    return {name: User.objects.get(pk=user.pk) for name, user in found.items()}


@pytest.fixture
def explored(target_row: Any, setting: Setting) -> Callable[..., Exploration]:
    """``explored(size=64, calls=3)``: an exploration that has ended."""

    def make(size: int = 64, calls: float = 1, **columns: Any) -> Exploration:
        return Exploration.objects.create(
            operator=register_operator(softmax(size)),
            target=target_row,
            setting=register_setting(setting),
            capability=target_row.capability,
            calls=calls,
            asked_at=timezone.now(),
            **{"state": State.DONE, "stage": 1, **columns},
        )

    return make


@pytest.fixture
def submitted(people: dict[str, Any]) -> Callable[..., KernelVersion]:
    """``submitted(source=…, by="ada")``: a version, as the service made it."""

    def make(by: str = "ada", name: str = "softmax", **given: Any) -> KernelVersion:
        fields = {"source": SOURCE, "pattern": PATTERN, "author": "Ada", "licence": "MIT", **given}
        return submit(Submission(name=name, **fields), user=people[by], organisation=default_organisation())

    return make


@pytest.fixture
def awaiting(
    submitted: Callable[..., KernelVersion], target_row: Any, setting: Setting
) -> Callable[..., KernelVersion]:
    """A version whose evaluations went well."""

    def make(**given: Any) -> KernelVersion:
        version = submitted(**given)
        if not version.evaluations.exists():
            where = {"target": target_row, "setting": register_setting(setting)}
            KernelEvaluation.objects.create(version=version, operator=register_operator(softmax()), **where)
        KernelEvaluation.objects.filter(version=version).update(state=EvaluationState.DONE, status="ok")
        KernelVersion.objects.filter(pk=version.pk).update(state=VersionState.AWAITING)
        version.refresh_from_db()
        return version

    return make


def approve(version: KernelVersion, *, user: Any, reason: str) -> KernelVersion:
    """By somebody who looked at everything there is."""
    looked_at = Dossier(KernelVersion.objects.get(pk=version.pk)).digests
    return services.approve(version, user=user, reason=reason, looked_at=looked_at)
