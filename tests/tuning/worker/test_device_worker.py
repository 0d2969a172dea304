"""A GPU's worker from end to end, on a simulated device: queue, claim, contest, faults, a hang, hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.catalog.making import GPU
from tests.tuning.live import look_up, measuring
from tests.tuning.measure.kernels import relu_operator
from tests.tuning.people import Person

pytestmark = [pytest.mark.alone, pytest.mark.slow]


SOURCE = """
extern "C" __global__ void relu(const float* x, float* y) {}  // simulated: %s
"""
LAUNCH = {
    "run": [
        {
            "function": "relu",
            "grid": ["ceil(IN0_SIZE, 256)", 1, 1],
            "block": [256, 1, 1],
            "arguments": [{"input": 0}, {"output": 0}],
        }
    ]
}


def submission(name: str, does: str) -> dict[str, Any]:
    known = {"author": "Ada", "licence": "MIT", "pattern": {"op": "Relu"}, "language": "cuda"}
    return {"name": name, "source": SOURCE % does, "launch": LAUNCH, **known}


def test_device_code_is_submitted_evaluated_approved_and_wins(tmp_path: Path, django_db_blocker: Any) -> None:
    from catalog.models import Best
    from tuning.models import Exploration, State, Trial

    operator = relu_operator()
    with django_db_blocker.unblock(), measuring(tmp_path, app="tests.tuning.device_worker") as service:
        service.environment["OPATLAS_RUN_S"] = "6"  # which the one that hangs takes
        service.start_worker()
        service.wait_warm()
        look_up(operator, target=GPU)
        service.wait_for(lambda: Exploration.objects.filter(state=State.DONE).exists(), "its contest")
        ada, bob = Person("ada", "kernels"), Person("bob", "approve", decides=True)

        def settled(version: dict[str, Any]) -> Any:
            now = ada.get(f"versions/{version['id']}")
            return now if now["state"] not in ("submitted", "building") else None

        faulty = ada.post("", submission("faulty", "beyond 50")).json()
        endless = ada.post("", submission("endless", "hanging 50")).json()
        honest = ada.post("", submission("honest", "relu 75")).json()
        failed = service.wait_for(lambda: settled(faulty), "the faulty one's evaluation")
        assert failed["state"] == "failed"
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in failed["state_reason"]
        hung = service.wait_for(lambda: settled(endless), "the endless one's evaluation")
        assert hung["state"] == "failed"
        assert "longer than it may" in hung["state_reason"]
        right = service.wait_for(lambda: settled(honest), "the honest one's evaluation")
        if right["state"] == "noisy":
            pytest.skip("a busy host: its evaluation was disturbed three times")
        assert right["state"] == "awaiting", right
        evidence = ada.get(f"versions/{honest['id']}/evidence")
        assert evidence["inspections"][0]["observed"] == {"device": {}}
        looked_at = {name: evidence["digests"][name] for name in ("source", "risks")}
        approved = bob.post(f"versions/{honest['id']}/approve", {"reason": "fast", "looked_at": looked_at})
        assert approved.json()["state"] == "approved", approved.json()
        best = Best.objects.filter(rank=0, route="cuda", method="manual")
        disturbed = Trial.objects.filter(route="cuda", status="noisy")
        service.wait_for(lambda: best.exists() or disturbed.count() > 1, "the approved kernel's round")
        if not best.exists():
            pytest.skip("a busy host: the approved kernel could not be timed")
        (hit,) = look_up(operator, target=GPU)
        assert (hit.best.route, hit.best.kind) == ("cuda", "cuda-module")


@pytest.mark.nightly  # by day its misses become hits above, with what people submit
def test_a_miss_on_a_gpu_becomes_a_hit(tmp_path: Path, django_db_blocker: Any) -> None:
    from catalog.models import Best
    from tuning.models import Exploration, State, Trial, Worker

    operator = relu_operator()
    with django_db_blocker.unblock(), measuring(tmp_path, app="tests.tuning.device_worker") as service:
        service.start_worker()
        service.wait_warm()
        assert Worker.objects.get().target.capability == "cuda.sm_90"
        (miss,) = look_up(operator, target=GPU)
        assert miss.status == "miss"
        service.wait_for(lambda: Exploration.objects.filter(state=State.DONE).exists(), "its contest")
        lost = {"eager", "triton"} - set(Best.objects.values_list("route", flat=True))
        if disturbed := lost & set(Trial.objects.filter(status="noisy").values_list("route", flat=True)):
            pytest.skip(f"a busy host: {', '.join(sorted(disturbed))} could not be timed")
        (hit,) = look_up(operator, target=GPU)
        assert (hit.status, hit.best.route, hit.best.kind) == ("hit", "triton", "cuda-module")
        assert hit.best.ratio_to_default == pytest.approx(500 / 150, rel=0.2)
        assert hit.best.median_us == pytest.approx(150, rel=0.3)
        assert Best.objects.get(is_default=True).route == "eager"
        endings = {trial.route: (trial.status, trial.detail) for trial in Trial.objects.order_by("pk")}
        assert endings["inductor"][0] == "crashed"
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in endings["inductor"][1]
        assert endings["xla"][0] == "cheated"
        assert endings["cublaslt"][0] in ("ok", "slower", "noisy"), "three times as long as the default"
        assert not lost
        (elsewhere,) = look_up(operator)
        assert elsewhere.status == "miss", "what is known of a GPU says nothing of this machine's processor"
