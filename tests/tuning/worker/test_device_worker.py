"""A GPU's worker from end to end, on a simulated device: queue, claim, contest, faults, hit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.catalog.making import GPU
from tests.tuning.live import look_up, measuring
from tests.tuning.measure.kernels import relu_operator

pytestmark = [pytest.mark.alone, pytest.mark.slow]


def test_a_miss_on_a_gpu_becomes_a_hit(tmp_path: Path, django_db_blocker: Any) -> None:
    from catalog.models import Best
    from tuning.models import Exploration, State, Trial, Worker

    operator = relu_operator()
    with django_db_blocker.unblock(), measuring(tmp_path, app="tests.tuning.device_worker") as service:
        service.start_worker()
        service.wait_warm(timeout_s=120)
        assert Worker.objects.get().target.capability == "cuda.sm_90"
        (miss,) = look_up(operator, target=GPU)
        assert miss.status == "miss"
        service.wait_for(lambda: Exploration.objects.filter(state=State.DONE).exists(), "its contest", 120)
        (hit,) = look_up(operator, target=GPU)
        assert (hit.status, hit.best.route, hit.best.kind) == ("hit", "triton", "cuda-module")
        assert hit.best.ratio_to_default == pytest.approx(100 / 30, rel=0.2)
        assert hit.best.median_us == pytest.approx(30, rel=0.3)
        assert Best.objects.get(is_default=True).route == "eager"
        endings = {trial.route: (trial.status, trial.detail) for trial in Trial.objects.order_by("pk")}
        assert endings["inductor"][0] == "crashed"
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in endings["inductor"][1]
        assert endings["xla"][0] == "cheated"
        assert {"eager", "cublas", "triton"} <= set(Best.objects.values_list("route", flat=True))
        (elsewhere,) = look_up(operator)
        assert elsewhere.status == "miss", "what is known of a GPU says nothing of this machine's processor"
