"""Whatever operators are looked up, each ends or is refused with a sentence, and the service goes on."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from catalog.models import Best, Miss, MissState, StepFailure
from opatlas.identity import detect_target
from tests.conftest import Api
from tests.tuning import fakes
from tests.tuning.any_operator import admissible
from tests.tuning.live import LONG_S, Live, measuring
from tuning.models import Exploration, State
from tuning.queue.promote import promote_misses

BATCH = 50
ENDED = (MissState.EXPLORED, MissState.FAILED, MissState.UNSUPPORTED, MissState.DISCARDED)
MATMUL = {"op": "MatMul", "inputs": [{"dtype": "float32", "shape": [64, 48]},
                                     {"dtype": "float32", "shape": [48, 32], "const": True}]}  # fmt: skip


def refused(api: Any, graphs: Sequence[dict[str, Any]], target: Any) -> int:
    """How many of these were refused at the door; whatever is wrong with one, the others become misses."""
    body = {"target": target.to_json(), "operators": [{"graph": graph} for graph in graphs]}
    answer = api.post("lookup", body)
    said = answer.json()
    if answer.status_code == 200:
        barred = [one for one in said["results"] if one["status"] == "miss" and one["state"] == "discarded"]
        assert all(one["reason"].endswith(".") for one in barred), barred
        return len(barred)
    assert 400 <= answer.status_code < 500, said
    if len(graphs) == 1:
        assert said["error"].endswith("."), said
        return 1
    return sum(refused(api, [one], target) for one in graphs)


@pytest.mark.django_db
def test_a_handful_of_any_operators_is_explored_without_a_failure_of_the_services_own(
    api: Any, target_row: Any, live_worker: Any, worker_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a laboratory that measures nothing: all that is read, weighed and written round it is the real."""
    monkeypatch.setattr("tuning.worker.process.close_old_connections", lambda: None)
    graphs = list(admissible(seed=1, count=8))
    graphs.append({"op": "Cast", "attrs": {"to": 22}, "inputs": [{"dtype": "float32", "shape": [4]}]})
    at_the_door = refused(api, graphs, fakes.TARGET)
    assert at_the_door >= 1, "4-bit elements"
    promote_misses()
    assert not StepFailure.objects.exists()
    misses = {one.operator.key: one for one in Miss.objects.select_related("operator")}
    assert len(misses) > 4
    for miss in misses.values():
        assert miss.state == MissState.PROMOTED or (
            miss.state == MissState.DISCARDED and "It needs" in miss.reason
        ), (miss.operator.summary, miss.state, miss.reason)
    worker = worker_with(fakes.FakeRoute("quick", offers=({"ratio": 2.0},)))
    assert worker.run_until_idle() > 0
    states = Exploration.objects.exclude(state=State.DONE).values_list("operator__summary", "error")
    assert list(states) == [] and not StepFailure.objects.exists()


@pytest.fixture
def service(tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    with django_db_blocker.unblock(), measuring(tmp_path) as found:
        yield found


@pytest.mark.nightly
@pytest.mark.alone
@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_a_thousand_of_any_operators_leave_a_service_that_explores(
    service: Live,
) -> None:
    from catalog.people.keys import create_api_key
    from catalog.registry import default_organisation

    count = int(os.environ.get("ANY_OPERATORS", "1000"))
    graphs = list(admissible(seed=37, count=count))
    api, target = Api(create_api_key(default_organisation(), "any", ["lookup"])[1]), detect_target()
    service.start_worker()
    service.wait_warm(timeout_s=5 * LONG_S)
    for start in range(0, count, BATCH):
        refused(api, graphs[start : start + BATCH], target)
    _wait_until_ended(service)
    said = {miss.reason for miss in Miss.objects.exclude(state=MissState.EXPLORED)}
    assert not [reason for reason in said if "Traceback" in reason or 'File "' in reason]
    assert not StepFailure.objects.filter(row=0).exists(), list(StepFailure.objects.all())
    refused(api, [MATMUL], target)
    best = Best.objects.filter(operator__op_type="MatMul", operator__summary__contains="64×48, 48×32")
    service.wait_for(best.exists, "a best of a usual product")


def _wait_until_ended(service: Live) -> None:
    """Every miss; for as long as anything moves."""
    seen, since = "", time.monotonic()
    while open_ones := Miss.objects.exclude(state__in=ENDED).count():
        now = f"{open_ones} {Exploration.objects.order_by('-updated_at').values_list('updated_at').first()}"
        if now != seen:
            seen, since = now, time.monotonic()
        assert time.monotonic() - since < LONG_S, f"{open_ones} are still open.\n{service.last_words()}"
        time.sleep(0.2)
