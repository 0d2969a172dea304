"""CPU and GPU targets on pages: side by side on an operator's, by choice on the methods', as workers."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.test import Client

from catalog import models as c
from tests.dashboard.factory import GPU_ROUTES, Factory, on_a_gpu
from tuning.api.trials import TrialAnswer
from tuning.api.workers import WorkerStatisticsSerializer
from tuning.models import Trial, Worker
from tuning.statistics.workers import fleet, workers

H100 = "cuda.sm_90 (NVIDIA H100 80GB HBM3)"


@pytest.fixture
def there(catalogue: Factory) -> Factory:
    return on_a_gpu(catalogue, c.Operator.objects.filter(best_set__rank=0).order_by("pk")[:1])


def rows_of(client: Client, path: str, table: str) -> list[dict[str, Any]]:
    return json.loads(client.get(f"{path}?export=json&table={table}").content)["rows"]


def test_an_operators_targets_stand_side_by_side(pages: Client, there: Factory) -> None:
    c.Best.objects.filter(target=there.target, rank=0).update(median_us=0.5)  # came last, and is the fastest
    best = c.Best.objects.get(target=there.target, rank=0)
    path = f"/operators/{best.operator.key}/"
    rows = rows_of(pages, path, "targets")
    assert {row["target"] for row in rows} == {H100, "cpu.zen3"}
    assert [row["median_us"] for row in rows] == sorted(row["median_us"] for row in rows)
    assert rows[0]["times_the_fastest"] == 1.0 < rows[1]["times_the_fastest"]
    on_gpu = next(row for row in rows if row["target"] == H100)
    assert (on_gpu["route"], on_gpu["median_us"]) == (best.route, best.median_us)
    assert on_gpu["setting"] == "warm cache", "a GPU has no threads"
    page = pages.get(path).content.decode()
    assert "Targets side by side" in page
    assert f'href="?at={there.target.pk}-{there.setting.pk}"' in page
    alone = c.Operator.objects.exclude(best_set__target=there.target).filter(best_set__rank=0)[0]
    assert "Targets side by side" not in pages.get(f"/operators/{alone.key}/").content.decode()


def test_methods_are_filtered_by_target(pages: Client, there: Factory) -> None:
    page = pages.get("/methods/").content.decode()
    chosen = f"{there.target.pk}-{there.setting.pk}"
    assert re.search(rf'<option value="{chosen}">{re.escape(H100)}, warm cache</option>', page)
    here = pages.get(f"/methods/?at={chosen}&export=json&table=routes").content
    won = {row["name"]: row["operators_found"] for row in json.loads(here)["rows"] if row["operators_found"]}
    assert won == dict.fromkeys((route for route, *_ in GPU_ROUTES), 1)


def test_workers_show_device_memory_and_clocks(pages: Client, there: Factory) -> None:
    page = pages.get("/queues/").content.decode()
    for words in (
        "cuda:0, NVIDIA H100 80GB HBM3",
        "5.37 GB of 85.5 GB",
        "1755 MHz, 54 °C; power cap",
    ):
        assert words in page
    Worker.objects.filter(device="cuda:0").update(device_state={"why_not": "nvidia-ml-py is not installed"})
    assert "nvidia-ml-py is not installed" in pages.get("/queues/").content.decode()


DEVICE = {"upload_us": 412.0, "download_us": 96.4, "warm_us": 3.12, "cold_us": 8.25, "launch_bound": True}


def test_trials_on_a_device_say_what_their_copies_took(pages: Client, there: Factory) -> None:
    trial = Trial.objects.filter(status="ok").latest("pk")
    Trial.objects.filter(pk=trial.pk).update(device=DEVICE)
    path = f"/explorations/{trial.exploration_id}/"
    said = "copies: 412 µs in, 96.4 µs out; the device: 3.12 µs, 8.25 µs with cold caches; launch-bound"
    assert pages.get(path).content.decode().count(said) == 1
    rows = rows_of(pages, path, "trials")
    (row,) = [row for row in rows if row["upload_us"]]
    assert (row["id"], row["upload_us"], row["download_us"]) == (trial.pk, 412.0, 96.4)
    assert (row["device_warm_us"], row["device_cold_us"], row["launch_bound"]) == (3.12, 8.25, True)
    (told,) = [one for one in TrialAnswer(Trial.objects.all(), many=True).data if one["device"]]
    assert told["device"] == DEVICE


def test_rest_tells_the_same_of_workers(there: Factory) -> None:
    (told,) = [one for one in WorkerStatisticsSerializer(workers(fleet()), many=True).data if one["device"]]
    assert (told["device"], told["device_memory_bytes"]) == ("cuda:0", 85520809984)
    assert told["device_state"]["sm_mhz"] == 1755
