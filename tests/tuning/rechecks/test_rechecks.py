"""What jobs report is proved again by a worker: what fails there is withdrawn, and no report alone does."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from catalog.best.publishing import publish
from catalog.best.withdrawing import withdraw
from catalog.models import Best, Implementation, Miss, Operator, Organisation
from catalog.registry import register_operator, register_setting
from opatlas.identity import Setting, detect_target
from tests.catalog.making import new_result
from tests.opatlas.load.kernels import ADD, CRASHES, FAILS_LATER, LOADS_NOWHERE, add_operator, build
from tests.tuning import fakes
from tests.tuning.fakes import FakeRoute
from tuning.explore.signing import signing_key
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome, Status
from tuning.models import FailureReport, Recheck
from tuning.queue.held import Stopping
from tuning.rechecks import rechecking, reporting
from tuning.routes.registry import default_candidate
from tuning.worker.turns import work_waits

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def put(target_row: Any, setting: Setting, configure: Any, tmp_path: Path) -> Callable[..., Implementation]:
    """``put("wrong", size=64)``: what a worker published, which behaves so when it is proved again."""
    configure(home=tmp_path, store=tmp_path / "artifacts")

    def make(
        behave: str = "ok", route: str = "quick", size: int = 1024, ratio: float = 2.0, **changes: Any
    ) -> Any:
        place = {
            "operator": register_operator(fakes.operator("Relu", size)),
            "target": target_row,
            "setting": register_setting(setting),
        }
        changes = {"needs": {}, "candidate": {"behave": behave}, "signing_key": signing_key()} | changes
        return publish(new_result(place, route, ratio, **changes)).implementation

    return make


@pytest.fixture
def report(api: Any) -> Callable[..., str]:
    """``report(implementation)`` → what the service says becomes of it."""

    def post(row: Implementation, status: int = 200, by: Any = None, **more: Any) -> Any:
        failed = {
            "implementation": row.pk, "artifact": row.artifact.sha256, "where": "run",
            "error": "KernelFailed", "message": "code 7",
        }  # fmt: skip
        answer = (by or api).post("failures", {"failed": [failed | more], "job": "today"})
        assert answer.status_code == status, answer.json()
        return answer.json() if status != 200 else answer.json()["results"][0]["state"]

    return post


@pytest.fixture
def worker(worker_with: Any) -> Any:
    return worker_with(FakeRoute("quick"))


def served() -> str:
    best = Best.objects.filter(rank=0).first()
    return best.route if best else ""


@pytest.mark.parametrize("behave", ["wrong", "cheated", "crashed"])
def test_what_fails_again_is_withdrawn_and_the_next_best_served(
    put: Any, report: Any, worker: Any, behave: str
) -> None:
    put(route="eager", ratio=1.0)
    row = put(behave)
    assert served() == "quick" and report(row) == "waiting" and served() == "quick", (
        "a report withdraws nothing"
    )
    assert worker.run_until_idle() == 1
    recheck = Recheck.objects.get()
    assert (recheck.state, recheck.worker, recheck.lease_owner) == ("withdrawn", worker.owner, "")
    row.refresh_from_db()
    assert served() == "eager" and "reported by a job, and proved again" in row.failed_reason
    assert report(row) == "withdrawn"
    checked = [one["route"] for one in fakes_log(worker) if one["what"] == "check"]
    assert checked == ["quick", "eager"] * (2 if behave == "crashed" else 1), "a mishap has a second chance"


def test_what_is_told_of_it_says_nothing_of_where_things_lie(
    put: Any, report: Any, worker: Any, monkeypatch: Any
) -> None:
    put(route="eager", ratio=1.0)
    row = put("wrong")
    check = fakes.FakeLaboratory.check

    def checked(self: Any, operator: Any, setting: Setting, artifact: Any) -> Outcome:
        found = check(self, operator, setting, artifact)
        return found if found.ok else replace(found, detail="off, see /srv/opatlas/a.so")

    monkeypatch.setattr(fakes.FakeLaboratory, "check", checked)
    report(row)
    assert worker.run_until_idle() == 1
    row.refresh_from_db()
    for said in (row.failed_reason, Recheck.objects.get().detail):
        assert said.endswith("off, see a.so")


@pytest.fixture
def host(monkeypatch: Any) -> set[str]:
    """``host.add("eager")``: whose checks fail from now on, whoever is to blame."""
    fails, check = set[str](), fakes.FakeLaboratory.check

    def checked(self: Any, operator: Any, setting: Setting, artifact: Any) -> Outcome:
        found = check(self, operator, setting, artifact)
        overloaded = artifact.manifest.route in fails
        return Outcome(Status.TIMED_OUT, "took longer than it may") if overloaded else found

    monkeypatch.setattr(fakes.FakeLaboratory, "check", checked)
    return fails


def later(**columns: Any) -> None:
    """What is to be tried again is due."""
    assert Recheck.objects.filter(due_at__gt=timezone.now()).update(due_at=timezone.now(), **columns) == 1


@pytest.mark.parametrize("behave", ["ok", "crashed", "wrong"])
def test_where_the_default_fails_too_nothing_is_held_against_it_and_it_is_tried_again(
    put: Any, report: Any, worker: Any, host: set[str], behave: str
) -> None:
    """An overloaded host: a report must not be able to withdraw what is good; what is bad goes later."""
    row = put(behave)
    report(row)
    host |= {"quick", "eager"} if behave == "ok" else {"eager"}
    assert worker.run_until_idle() == 1
    recheck = Recheck.objects.get()
    assert (recheck.state, recheck.repeats, recheck.tries) == ("unchecked", 1, 0) and served() == "quick"
    assert "The default failed beside it (timed_out: took longer than it may)" in recheck.detail
    assert report(row) == "unchecked" and worker.run_until_idle() == 0, "not before it is due"
    host.clear()
    later()
    assert worker.run_until_idle() == 1
    recheck.refresh_from_db()
    assert (recheck.state, served()) == (("not_reproduced", "quick") if behave == "ok" else ("withdrawn", ""))
    assert recheck.due_at is None and worker.run_until_idle() == 0


def test_it_is_tried_again_more_and_more_seldom_and_not_for_ever(
    put: Any, report: Any, worker: Any, host: set[str]
) -> None:
    report(put("crashed"))
    host.add("eager")
    waits = []
    for _ in range(rechecking.MOST_REPEATS):
        assert worker.run_until_idle() == 1
        recheck = Recheck.objects.get()
        waits.append(round((recheck.due_at - recheck.finished_at).total_seconds()))
        later()
    assert waits == [600, 2400, 9600, 38400]
    assert worker.run_until_idle() == 1 and Recheck.objects.get().due_at is None
    assert worker.run_until_idle() == 0 and served() == "quick"


def test_a_load_that_comes_between_the_two_looks_is_noticed_too(
    put: Any, report: Any, worker: Any, host: set[str], monkeypatch: Any
) -> None:
    """The default passes after its first failure, and fails after its second."""
    report(put("crashed"))
    check, seen = fakes.FakeLaboratory.check, []

    def checked(self: Any, operator: Any, setting: Setting, artifact: Any) -> Outcome:
        seen.append(artifact.manifest.route)
        if len(seen) == 4:
            host.add("eager")
        return check(self, operator, setting, artifact)

    monkeypatch.setattr(fakes.FakeLaboratory, "check", checked)
    worker.run_until_idle()
    assert seen == ["quick", "eager"] * 2
    assert Recheck.objects.get().repeats == 1 and served() == "quick"


def test_where_there_is_no_default_nothing_says_whose_fault_it_is(
    put: Any, report: Any, worker_with: Any
) -> None:
    report(put("crashed"))
    worker_with(FakeRoute("quick"), default=None).run_until_idle()
    recheck = Recheck.objects.get()
    assert recheck.state == "unchecked" and "no default to hold it against" in recheck.detail
    assert recheck.due_at is None and served() == "quick"


def fakes_log(worker: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (worker.home / "laboratory.jsonl").read_text().splitlines()]


def test_what_cannot_be_reproduced_stays_and_is_not_asked_again_for_a_day(
    put: Any, report: Any, worker: Any, monkeypatch: Any
) -> None:
    row = put()
    assert [report(row), report(row)] == ["waiting", "waiting"]
    worker.run_until_idle()
    row.refresh_from_db()
    assert served() == "quick" and row.failed_at is None
    assert report(row) == "not_reproduced" and worker.run_until_idle() == 0
    found = FailureReport.objects.get()
    assert (found.count, found.error, found.message, found.job) == (3, "KernelFailed", "code 7", "today")
    Recheck.objects.update(finished_at=timezone.now() - timedelta(days=2))
    assert report(row) == "waiting" and Recheck.objects.count() == 1
    assert worker.run_until_idle() == 1


@pytest.mark.parametrize("behave", ["noisy"])
def test_what_says_nothing_of_it_leaves_it_where_it_is(
    put: Any, report: Any, worker: Any, behave: str
) -> None:
    row = put(behave)
    report(row)
    worker.run_until_idle()
    assert served() == "quick" and report(row) == "unchecked"


def test_a_worker_of_other_versions_cannot_say(put: Any, report: Any, worker: Any) -> None:
    row = put("crashed", needs={"numpy": "1.0"})
    report(row)
    worker.run_until_idle()
    assert served() == "quick" and "needs numpy 1.0" in Recheck.objects.get().detail


def test_a_damaged_artifact_is_withdrawn(put: Any, report: Any, worker: Any, tmp_path: Path) -> None:
    from catalog.best.artifacts import file_path
    from tests.catalog.making import write_file

    files = write_file(tmp_path / "made", "data.bin", b"right")
    row = put(files=files, folder=tmp_path / "made")
    file_path(files["data.bin"]).write_bytes(b"wrong")
    report(row)
    worker.run_until_idle()
    row.refresh_from_db()
    assert Recheck.objects.get().state == "withdrawn" and "damaged" in Recheck.objects.get().detail
    assert row.failed_at is None and row.artifact.damaged_at, "nothing is said against the candidate"


def test_others_private_ones_and_other_artifacts_are_unknown(
    put: Any, report: Any, tenant: Organisation, tenant_api: Any
) -> None:
    shared = put()
    theirs = put(size=64, scope=f"org:{tenant.pk}", owner=tenant)
    assert report(theirs) == "unknown" and report(theirs, by=tenant_api) == "waiting"
    assert report(shared, artifact="0" * 64) == "unknown"
    assert report(shared, implementation=10**9) == "unknown"
    assert FailureReport.objects.get().organisation == tenant


def test_what_was_revoked_needs_no_proof(put: Any, report: Any) -> None:
    row = put()
    withdraw(Implementation.objects.filter(pk=row.pk), "it is wrong")
    assert report(row) == "withdrawn" and not Recheck.objects.exists()


def test_one_organisation_asks_for_only_so_many_a_day_and_has_so_many_kept(
    put: Any, report: Any, tenant_api: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(reporting, "MOST_ASKED", 2)
    monkeypatch.setattr(reporting, "MOST_KEPT", 3)
    rows = [put(size=64 + number) for number in range(4)]
    assert [report(row) for row in rows] == ["waiting", "waiting", "refused", "refused"]
    assert report(rows[3], by=tenant_api) == "waiting", "another's are another's"
    mine = FailureReport.objects.exclude(organisation__name="Tenant")
    assert set(mine.values_list("implementation", flat=True)) == {row.pk for row in rows[1:]}


def take_turn(worker: Any) -> int:
    """Do what is next; 0 where nothing is."""
    turn = worker._next_turn()
    return int(worker._take(turn)) if turn else 0


def test_who_has_had_less_of_the_workers_comes_first_and_who_has_had_too_much_waits(
    put: Any, report: Any, worker: Any, tenant_api: Any, target_row: Any
) -> None:
    mine = [put(size=64 + number) for number in range(3)]
    theirs = put(size=128)
    assert [report(row) for row in mine] == ["waiting"] * 3
    assert report(theirs, by=tenant_api) == "waiting"

    def in_order() -> list[int]:
        return [row.implementation_id for row in rechecking.waiting(target_row.pk)]

    assert in_order() == [*(row.pk for row in mine), theirs.pk], "the oldest first"
    assert take_turn(worker) == 1
    recheck = Recheck.objects.get(implementation=mine[0])
    assert 0 < recheck.spent_s < 60
    assert worker._next_turn().organisation == theirs.rechecks.get().asked_by_id
    assert in_order() == [mine[1].pk, mine[2].pk, theirs.pk]
    Recheck.objects.filter(pk=recheck.pk).update(spent_s=rechecking.MOST_SPENT_S)
    assert in_order() == [theirs.pk]
    Recheck.objects.filter(pk=recheck.pk).update(asked_at=timezone.now() - timedelta(days=1, minutes=1))
    assert in_order() == [*(row.pk for row in mine[1:]), theirs.pk]


def test_one_that_is_due_is_rung_for(put: Any, report: Any, host: set[str], worker: Any) -> None:
    from tuning.worker.leader import idle_with_work

    report(put("crashed"))
    worker._say("")
    assert idle_with_work() == {fakes.TARGET.capability}
    host.add("eager")
    worker.run_until_idle()
    assert idle_with_work() == set()
    later()
    assert idle_with_work() == {fakes.TARGET.capability}


def test_a_worker_that_falls_silent_leaves_it_to_another(
    put: Any, report: Any, worker: Any, target_row: Any
) -> None:
    report(put("wrong"))
    first = rechecking.claim("dead", target_row.pk)
    assert first is not None and rechecking.claim("w1", target_row.pk) is None
    Recheck.objects.update(lease_expires_at=timezone.now() - timedelta(seconds=5))
    assert work_waits(target_row.pk, rechecking.Q())
    assert worker.run_until_idle() == 1 and served() == ""
    assert rechecking.run_recheck(worker._workshop(), first) is False, "its claim was lost"


def test_one_that_silences_every_worker_is_given_up(put: Any, report: Any, worker: Any) -> None:
    report(put("wrong"))
    Recheck.objects.update(tries=rechecking.MAX_TRIES)
    worker.run_until_idle()
    assert served() == "quick" and "fell silent" in Recheck.objects.get().detail


def test_a_stopping_worker_gives_it_back(put: Any, report: Any, worker: Any) -> None:
    from tuning.worker import stopping

    report(put("wrong"))
    held = rechecking.claim(worker.owner, worker.target_row.pk)
    stopping.ask()
    with pytest.raises(Stopping):
        rechecking.run_recheck(worker._workshop(), held)
    recheck = Recheck.objects.get()
    assert (recheck.state, recheck.tries, served()) == ("waiting", 0, "quick")


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ({"where": "somewhere"}, "failed"),
        ({"message": "m" * 301}, "failed"),
        ({"error": ""}, "failed"),
        ({"artifact": "ab"}, "failed"),
    ],
)
def test_reports_that_are_none_are_refused(put: Any, report: Any, more: Any, where: str) -> None:
    assert report(put(), status=400, **more)["where"].startswith(where)
    assert not FailureReport.objects.exists()


def test_what_is_shown_is_printable(put: Any, report: Any) -> None:
    report(put(), message="a\u202eb\x1b[31m", error="<b>")
    assert FailureReport.objects.get().message == "a b [31m"


def test_operators_that_become_one_keep_one_of_each(put: Any, report: Any) -> None:
    from catalog.lookup.rekeying import rekey_operators

    report(put())
    Operator.objects.update(key="o0:" + "a" * 64)
    report(put())
    assert (Recheck.objects.count(), FailureReport.objects.count()) == (2, 2)
    assert rekey_operators().merged == 1
    assert (Recheck.objects.count(), FailureReport.objects.count()) == (1, 1)


@pytest.mark.slow
def test_real_kernels_in_the_real_sandbox(
    put: Any, report: Any, worker: Any, target_row: Any, setting: Setting, configure: Any, tmp_path: Path
) -> None:
    """One that fails at its third call, one that crashes, one that does not load, and one that is right."""
    configure(lock=tmp_path / "lock")
    place = {"target": target_row, "setting": register_setting(setting)}
    made = {}
    for size, (name, source) in enumerate(
        {"fails": FAILS_LATER, "crashes": CRASHES, "loads": LOADS_NOWHERE, "right": ADD}.items(), 1000
    ):
        folder = tmp_path / name
        folder.mkdir()
        operator = add_operator(size)
        manifest = build(folder, source, operator, threads=setting.threads)
        publication = new_result(place | {"operator": register_operator(operator)}, "tvm", 2.0)
        publication = replace(publication, manifest=manifest, folder=folder, signing_key=signing_key())
        made[name] = publish(publication).implementation
        assert report(made[name]) == "waiting"
    with Laboratory(tmp_path / "laboratory", detect_target()) as laboratory:
        laboratory.warm(())
        worker._laboratory = laboratory
        worker.tools = replace(worker.tools, default_candidate=default_candidate)
        assert [take_turn(worker) for _ in range(5)] == [1, 1, 1, 1, 0]
        worker._laboratory = None
    states = {name: Recheck.objects.get(implementation=row).state for name, row in made.items()}
    assert states == {
        "fails": "withdrawn", "crashes": "withdrawn", "loads": "withdrawn", "right": "not_reproduced"
    }  # fmt: skip
    left = Best.objects.filter(implementation__in=made.values()).values_list("implementation", flat=True)
    assert list(left) == [made["right"].pk]
    assert not Miss.objects.exists()
