"""One tenant's kernels and another's first result, over the fake laboratory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.errors import QuotaUsed
from tests.tuning.kernels.test_evaluating import KernelLaboratory, source, worker  # noqa: F401 - a fixture
from tuning.kernels.models import EvaluationState, KernelEvaluation
from tuning.models import Exploration, WorkerShare
from tuning.worker.process import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def bombs(explored: Any, submitted: Any) -> None:
    """Five kernels whose builds are killed."""
    explored(64)
    for number in range(5):
        submitted(name=f"bomb{number}", source=source(behave="build_killed", number=number))


def builds(home: Path) -> list[str]:
    """Routes whose candidates were built, in order."""
    lines = [json.loads(line) for line in (home / "laboratory.jsonl").read_text().splitlines()]
    return [line["route"] for line in lines if line["what"] == "build"]


def test_five_compile_bombs_delay_anothers_first_result_by_the_one_that_is_built(
    worker: WorkerProcess,  # noqa: F811
    bombs: None,
    tenant: Any,
    make_miss: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def asked_meanwhile(self: Any, route: Any, *rest: Any) -> Any:
        if route.name == "cpp" and not asked:
            asked.append(make_miss("Relu", owner=tenant, scope=f"org:{tenant.pk}"))
        return original(self, route, *rest)

    original = KernelLaboratory.build
    monkeypatch.setattr(KernelLaboratory, "build", asked_meanwhile)
    worker.run_until_idle()
    order = builds(tmp_path)
    bomb_at = [at for at, route in enumerate(order) if route == "cpp"]
    assert len(bomb_at) == 5
    assert order.index("eager", bomb_at[0]) < bomb_at[1], order
    assert Exploration.objects.get(owner=tenant).first_result_at is not None
    assert not KernelEvaluation.objects.exclude(state=EvaluationState.DONE).exists(), "and nobody starved"


def test_who_is_owed_the_workers_goes_before_kernels_and_is_charged_for_it(
    worker: WorkerProcess,  # noqa: F811
    bombs: None,
    tenant: Any,
    organisation: Any,
    make_miss: Callable[..., Any],
    tmp_path: Path,
) -> None:
    make_miss("Relu", owner=tenant, scope=f"org:{tenant.pk}")
    worker.run_until_idle()
    first = builds(tmp_path)
    assert first[0] == "eager", "what is short and waited for goes before kernels"
    spent = dict(WorkerShare.objects.values_list("organisation", "spent_s"))
    assert spent.keys() == {tenant.pk, organisation.pk} and min(spent.values()) > 0


def test_an_organisation_has_so_many_kernels_waiting(explored: Any, submitted: Any, configure: Any) -> None:
    configure(kernels_per_organisation=1)
    explored(64)
    submitted(name="one")
    with pytest.raises(QuotaUsed, match="has 1 kernels that wait for their evaluation, which is the quota"):
        submitted(name="two")
