"""Operation and statistics of queues, misses and jobs over REST: the same as the pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from catalog.models import AuditEntry, Job, JobOperator, MissState, Organisation
from tests.dashboard.races import contest_report, first_report, keep_race
from tuning.models import Exploration, State, Trial

pytestmark = pytest.mark.django_db


def test_several_explorations_at_once(api: Any, make_exploration: Callable[..., Any]) -> None:
    rows = [make_exploration(size=n, state=state) for n, state in enumerate(("queued", "done"), 1)]
    ids = [row.pk for row in rows]
    answer = api.post("explorations/bulk", {"ids": ids, "action": "pause", "reason": "odd"})
    assert answer.status_code == 200
    assert answer.json()["done"] == ids[:1]
    (refused,) = answer.json()["refused"]
    assert refused["id"] == ids[1] and "it is done" in refused["error"]
    assert Exploration.objects.get(pk=ids[0]).reason == "odd (paused by key test)"
    entry = AuditEntry.objects.latest("pk")
    assert (entry.action, entry.detail["ids"]) == ("exploration.pause", ids[:1])


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("explorations/bulk", {"ids": [], "action": "pause"}, "at least 1"),
        ("explorations/bulk", {"ids": list(range(1, 300)), "action": "pause"}, "no more than 200"),
        ("explorations/bulk", {"ids": [1], "action": "explode"}, "not a valid choice"),
        ("explorations/bulk", {"ids": [1], "action": "prioritise"}, "takes a priority"),
        ("explorations/bulk", {"ids": [2**70], "action": "pause"}, "less than or equal"),
        ("explorations/bulk", {"ids": "1", "action": "pause"}, "list"),
        ("misses/bulk", {"ids": [1], "action": "pause"}, "not a valid choice"),
    ],
)
def test_orders_that_cannot_be_are_one_sentence(api: Any, path: str, body: Any, says: str) -> None:
    answer = api.post(path, body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]


def test_conflicting_orders_have_one_winner(
    api: Any, api_with: Any, make_key: Any, make_exploration: Callable[..., Any]
) -> None:
    row = make_exploration()
    assert api.post(f"explorations/{row.pk}/discard", {"reason": "gone"}).status_code == 200
    lost = api_with(make_key("lookup", "operate")).post(f"explorations/{row.pk}/pause")
    assert lost.status_code == 409
    assert "it is discarded (gone (discarded by key test))" in lost.json()["error"]


def test_misses_are_explored_and_discarded_by_hand(api: Any, make_miss: Callable[..., Any]) -> None:
    misses = [make_miss(size=n) for n in range(1, 5)]
    answer = api.post(f"misses/{misses[0].pk}/explore", {"priority": 0})
    assert (answer.status_code, answer.json()["state"]) == (200, "promoted")
    assert Exploration.objects.get().priority == 0
    assert api.post(f"misses/{misses[0].pk}/explore").status_code == 409
    answer = api.post(f"misses/{misses[1].pk}/discard", {"reason": "a typo"}).json()
    assert (answer["state"], answer["reason"]) == ("discarded", "a typo (discarded by key test)")
    ids = [miss.pk for miss in misses[1:]]
    answer = api.post("misses/bulk", {"ids": ids, "action": "explore"}).json()
    assert answer == {"done": ids, "refused": []}
    assert api.post("misses/424242/explore").status_code == 404


def test_a_tenants_key_steers_only_what_is_its_own(
    tenant: Any, tenant_api: Any, make_exploration: Callable[..., Any], make_miss: Callable[..., Any]
) -> None:
    shared = make_exploration(size=1)
    own = make_exploration(size=2, scope=f"org:{tenant.pk}", owner=tenant)
    miss = make_miss(size=3)
    assert tenant_api.post(f"explorations/{own.pk}/pause").status_code == 200
    refused = tenant_api.post(f"explorations/{shared.pk}/pause")
    assert refused.status_code == 403 and "host organisation" in refused.json()["error"]
    assert tenant_api.post(f"misses/{miss.pk}/discard").status_code == 403
    assert tenant_api.post("queues/pause", {}).status_code == 403
    assert tenant_api.post("queues/resume", {}).status_code == 403
    came = tenant_api.post("explorations/bulk", {"ids": [shared.pk, own.pk], "action": "retry"}).json()
    assert came["done"] == [] and len(came["refused"]) == 2
    assert Exploration.objects.get(pk=shared.pk).state == State.QUEUED


def test_the_log_tells_what_failed_and_what_goes_on(api: Any, make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(state=State.RUNNING, stage=1, doing="tvm: building", lease_owner="w1/7")
    common = {"exploration": row, "stage": 1, "method": "compiler", "route": "tvm"}
    Trial.objects.create(**common, status="ok", label="untuned", median_us=12.5, ratio_to_default=1.3)
    Trial.objects.create(
        **common, status="crashed", detail="signal 11", log_tail="\n".join(f"line {n}" for n in range(20))
    )
    answer = api.get(f"explorations/{row.pk}/log").json()
    assert answer["doing"] == "tvm: building"
    good, bad, now = answer["lines"]
    assert (good["level"], good["source"], good["text"]) == (
        "info", "tvm: untuned", "ok, 12.5 µs, 1.30× the default",
    )  # fmt: skip
    assert bad["level"] == "warn" and bad["text"].startswith("crashed: signal 11\nline 14")
    assert (now["source"], now["text"]) == ("w1/7", "contest: tvm: building")
    assert api.get("explorations/424242/log").status_code == 404


def test_the_races_tell_what_was_decided(api: Any, make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(stage=1)
    keep_race(row, first_report(), stage=0)
    keep_race(row, contest_report())
    newest, first = api.get(f"explorations/{row.pk}/races").json()["races"]
    assert (first["stage_name"], newest["heats"], newest["default_us"]) == ("first result", 2, 762.0)
    assert newest["decided"].startswith("tvm · untuned CPU schedule won: 2.14× the default")
    dropped = next(one for one in newest["entries"] if one["route"] == "xla")
    assert (dropped["rounds"], dropped["chance"], dropped["dropped"]) == (6, 0.004, True)
    assert dropped["ended"] == "dropped after 6 rounds: 0.4 % to win"
    assert newest["entries"][1]["final"] == {"median_us": 361.0, "ratio": 2.11, "low": 2.0467, "high": 2.1733}
    assert api.get("explorations/424242/races").status_code == 404


def test_the_time_left_says_how_it_was_estimated(
    api: Any, make_exploration: Callable[..., Any], live_worker: Any
) -> None:
    row = make_exploration(stage=1)
    found = api.get(f"explorations/{row.pk}/eta").json()["eta"]
    assert (found["seconds"], found["wait_s"]) == (20.0, 0.0)
    assert "20 s assumed for a contest, since none has ended yet" in found["how"]
    Exploration.objects.update(state=State.DONE)
    assert api.get(f"explorations/{row.pk}/eta").json() == {"eta": None}


def test_statistics_of_queues_and_workers(
    api: Any, make_exploration: Callable[..., Any], make_miss: Callable[..., Any], live_worker: Any
) -> None:
    make_exploration(size=1, worth=5.0)
    make_exploration(size=2, state=State.RUNNING, lease_owner="live/1", doing="tvm: building")
    make_exploration(size=3, state=State.DEAD)
    make_miss(size=4, state=MissState.POSTPONED, reason="later")
    found = api.get("statistics/queues").json()
    (line,) = found["capabilities"]
    assert (line["queued"], line["running"], line["workers"], line["worth_us"]) == (1, 1, 1, 5.0)
    assert line["drain_s"] == 25.0  # a first result and a contest, as assumed
    assert (line["wait_s"], line["foretold"]) == (10.0, None)  # what waits, and what the worker holds
    assert found["dead"] == 1 and len(found["throughput"]) == 24
    assert [(one["state"], one["reason"], one["count"]) for one in found["collect"]] == [
        ("postponed", "later", 1)
    ]
    (worker,) = api.get("statistics/workers").json()
    assert (worker["state"], worker["slices_per_hour"], worker["free_in_s"]) == ("alive", None, 5.0)
    assert [held["doing"] for held in worker["holds"]] == ["tvm: building"]


def test_another_tenants_private_work_is_not_counted(
    tenant_api: Any, make_exploration: Callable[..., Any]
) -> None:
    other = Organisation.objects.create(name="other")
    make_exploration(size=1, scope=f"org:{other.pk}", owner=other)
    assert tenant_api.get("statistics/queues").json()["lanes"] == []


def test_jobs_are_their_organisations_own(
    tenant: Any, tenant_api: Any, api: Any, make_miss: Callable[..., Any]
) -> None:
    operator = make_miss(state="discarded", reason="too large").operator
    mine, other = (
        Job.objects.create(organisation=owner, name=f"train {owner.pk}")
        for owner in (tenant, Organisation.objects.create(name="other"))
    )
    JobOperator.objects.create(job=mine, operator=operator, misses=2, miss_calls=8)
    assert [row["id"] for row in tenant_api.get("jobs/").json()["results"]] == [mine.pk]
    (row,) = tenant_api.get("statistics/jobs").json()["results"]
    assert (row["operators"], row["hits"], row["misses"], row["hit_rate"]) == (1, 0, 2, 0.0)
    found = tenant_api.get(f"statistics/jobs/{mine.pk}", range="7d").json()
    assert found["coverage"]["by_calls"] == 0.0
    assert found["coverage"]["missing"] == [
        {"state": "discarded", "reason": "too large", "operators": 1, "calls": 8.0}
    ]
    assert len(found["days"]) == 8
    assert tenant_api.get(f"statistics/jobs/{other.pk}").status_code == 404
    assert tenant_api.get(f"statistics/jobs/{mine.pk}", range="never").status_code == 400
    assert {row["id"] for row in api.get("jobs/").json()["results"]} == {mine.pk, other.pk}, (
        "the host sees all"
    )


def test_jobs_are_found_by_words(api: Any, organisation: Any) -> None:
    for name in ("nightly train", "nightly test"):
        Job.objects.create(organisation=organisation, name=name)
    assert api.get("jobs/", q="train night").json()["count"] == 1
    assert api.get("jobs/", q="\0").status_code == 400
