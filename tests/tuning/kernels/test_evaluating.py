"""What a worker makes of a submission, over fakes: evidence, verdicts, tries, and the contest afterwards."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catalog.models import Best, Implementation
from opatlas.identity import Operator, Setting
from tests.tuning import fakes
from tests.tuning.kernels.conftest import SOURCE, approve
from tuning.kernels import claims, selectors
from tuning.kernels.models import EvaluationState, KernelEvaluation, KernelVersion
from tuning.kernels.services import revoke
from tuning.measure.sandbox.tiers import SandboxTier
from tuning.models import Race, State, Trial
from tuning.routes.base import Candidate
from tuning.routes.manual.cpp import CppRoute
from tuning.worker.process import WorkerProcess

pytestmark = pytest.mark.django_db(transaction=True)


class KernelLaboratory(fakes.FakeLaboratory):
    """A submitted source says in its last line, as JSON, how it behaves."""

    tier = SandboxTier("T2")

    def build(
        self,
        route: Any,
        operator: Operator,
        setting: Setting,
        candidate: Candidate,
        workdir: Path,
        *rest: Any,
    ) -> Any:
        if route.name == "cpp":
            last = candidate.parameters["source"].splitlines()[-1].removeprefix("// ")
            says = json.loads(last) if last.startswith("{") else {}
            candidate = Candidate("cpp", {**candidate.parameters, **says}, candidate.label)
        return super().build(route, operator, setting, candidate, workdir)


@pytest.fixture
def worker(worker_with: Callable[..., WorkerProcess], tmp_path: Path, monkeypatch: Any) -> WorkerProcess:
    monkeypatch.setattr(CppRoute, "available", lambda self, target: fakes.Yes())
    made = worker_with(fakes.FakeRoute("onednn", offers=[{"ratio": 1.5}]), CppRoute())
    made._laboratory = KernelLaboratory(tmp_path, fakes.TARGET)  # type: ignore[assignment]
    return made


def source(**says: Any) -> str:
    return f"{SOURCE}// {json.dumps(says)}\n"


def fresh(version: KernelVersion) -> KernelVersion:
    return KernelVersion.objects.get(pk=version.pk)


def test_evidence_then_approval_then_the_contest_then_revocation(
    worker: WorkerProcess, explored: Any, submitted: Any, people: Any
) -> None:
    row = explored(64, state=State.QUEUED, stage=0)
    worker.run_until_idle()
    assert Best.objects.get(rank=0).route == "onednn"
    version = submitted(source=source(ratio=2.0, incumbent=1.6))
    worker.run_until_idle()
    version = fresh(version)
    assert version.state == "awaiting" and "2.00× the default" in version.state_reason
    (found,) = selectors.evaluations_of(version)
    assert (found.status, found.ratio_to_default, found.tier) == ("ok", 2.0, "T0")
    assert (found.incumbent_route, found.incumbent_ratio) == ("onednn", 1.6)
    assert [line["what"] for line in found.times] == ["kernel", "incumbent", "default", "best"]
    assert not Implementation.objects.filter(route="cpp").exists(), "nothing is published before approval"

    approve(version, user=people["bob"], reason="fine")
    worker.run_until_idle()
    best = Best.objects.get(rank=0)
    assert (best.route, best.method, best.label) == ("cpp", "manual", "softmax v1")
    (standing,) = selectors.version_standings(version)
    assert (standing.rank, standing.operator) == (0, row.operator)

    revoke(version, user=people["carol"], reason="a bug")
    assert Best.objects.get(rank=0).route == "onednn"
    worker.run_until_idle()
    assert Best.objects.get(rank=0).route == "onednn"
    assert [line.step for line in version.decisions.all()] == [
        "submitted", "building", "awaiting", "approved", "revoked",
    ]  # fmt: skip


def test_an_approved_kernel_opens_contests_where_nothing_else_is_known(
    worker: WorkerProcess, explored: Any, awaiting: Any, people: Any
) -> None:
    approve(awaiting(source=source(ratio=3.0)), user=people["bob"], reason="fine")
    row = explored(128, state=State.QUEUED, stage=0)
    worker.run_until_idle()
    opening, *rest = (race.report for race in Race.objects.filter(exploration=row).order_by("pk"))
    raced = [entry["route"] for entry in opening["entries"] if entry.get("heat")]
    assert raced == ["cpp"], opening
    assert not any(entry["route"] == "cpp" and entry.get("heat") for one in rest for entry in one["entries"])
    assert Best.objects.get(rank=0, operator=row.operator).route == "cpp"


def test_a_kernel_revoked_while_it_is_contested_is_not_published(
    worker: WorkerProcess, explored: Any, awaiting: Any, people: Any, monkeypatch: Any
) -> None:
    explored(64, state=State.QUEUED, stage=0)
    version = awaiting(source=source(ratio=3.0))
    approve(version, user=people["bob"], reason="fine")
    line_up = fakes.FakeBench.line_up

    def revoked_meanwhile(bench: Any, artifacts: Any, **more: Any) -> Any:
        if any(artifact.manifest.route == "cpp" for artifact in artifacts):
            revoke(fresh(version), user=people["carol"], reason="a bug")
        return line_up(bench, artifacts, **more)

    monkeypatch.setattr(fakes.FakeBench, "line_up", revoked_meanwhile)
    worker.run_until_idle()
    assert fresh(version).state == "revoked"
    assert not Implementation.objects.filter(route="cpp").exists()
    assert Best.objects.get(rank=0).route == "onednn"
    trial = Trial.objects.get(route="cpp", label="softmax v1")
    assert trial.detail == "Not published: its kernel is revoked."


@pytest.mark.parametrize(
    ("says", "state", "reason"),
    [
        ({"behave": "wrong"}, "failed", "wrong_result"),
        ({"behave": "crashed"}, "failed", "signal 11"),
        ({"behave": "build_failed"}, "failed", "does not compile"),
        ({"behave": "noisy"}, "noisy", "too noisy to time it on Softmax"),
        ({"behave": "cheated"}, "failed", "cheated in its evaluation"),
        ({"behave": "slower"}, "failed", "much slower than the default on 1 operator"),
    ],
)
def test_the_verdict_follows_the_evidence(
    worker: WorkerProcess, explored: Any, submitted: Any, says: Any, state: str, reason: str
) -> None:
    explored(64)
    version = submitted(source=source(**says))
    worker.run_until_idle()
    assert fresh(version).state == state and reason in fresh(version).state_reason
    assert version.evaluations.get().tries == (3 if says["behave"] == "noisy" else 1)


@pytest.mark.parametrize("tier", ["T1", "T0"])
def test_submitted_code_is_refused_without_the_tight_sandbox(
    worker: WorkerProcess, explored: Any, submitted: Any, tmp_path: Path, tier: str
) -> None:
    laboratory = KernelLaboratory(tmp_path, fakes.TARGET)
    laboratory.tier = SandboxTier(tier, (("T2", "bwrap is not installed"),))
    worker._laboratory = laboratory  # type: ignore[assignment]
    explored(64)
    version = submitted()
    worker.run_until_idle()
    assert fresh(version).state == "failed"
    assert "sandbox of tier T2 only (T2: bwrap is not installed" in fresh(version).state_reason


def test_an_approved_kernel_is_not_built_without_a_sandbox(
    worker: WorkerProcess, explored: Any, awaiting: Any, people: Any, tmp_path: Path
) -> None:
    worker._laboratory = fakes.FakeLaboratory(tmp_path, fakes.TARGET)  # type: ignore[assignment]
    explored(64, state=State.QUEUED, stage=0)
    approve(awaiting(source=source(ratio=9.0)), user=people["bob"], reason="fine")
    worker.run_until_idle()
    assert Best.objects.get(rank=0).route == "onednn"
    assert "sandbox" in Trial.objects.get(route="cpp").detail


def test_an_error_of_ours_is_tried_again_and_then_given_up(
    worker: WorkerProcess, explored: Any, submitted: Any
) -> None:
    explored(64)
    version = submitted(source=source(behave="die"))
    worker.run_until_idle()
    evaluation = version.evaluations.get()
    assert (evaluation.state, evaluation.tries) == (EvaluationState.DEAD, claims.MAX_TRIES)
    assert evaluation.detail.startswith("An internal error stopped it (RuntimeError)"), "the log has the rest"
    assert fresh(version).state == "failed"


def test_a_paused_worker_evaluates_nothing(worker: WorkerProcess, explored: Any, submitted: Any) -> None:
    from tuning.queue import steering as queues

    explored(64)
    submitted()
    queues.pause("*", "for now")
    worker.run_until_idle()
    assert KernelEvaluation.objects.get().state == EvaluationState.QUEUED
    queues.resume("*")
    worker.run_until_idle()
    assert KernelEvaluation.objects.get().state == EvaluationState.DONE


def test_the_leader_rings_for_evaluations(
    explored: Any, submitted: Any, live_worker: Any, target_row: Any
) -> None:
    from tuning.worker.leader import idle_with_work

    explored(64)
    assert idle_with_work() == set()
    submitted()
    assert idle_with_work() == {target_row.capability}
