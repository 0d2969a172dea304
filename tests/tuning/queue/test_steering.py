"""What people do to the queues, by command and by REST."""

from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from catalog.models import MissState
from catalog.signals import stage_awaited
from tuning.models import Exploration, Pause, State
from tuning.priority import Priority
from tuning.queue import claims
from tuning.queue import steering as queues
from tuning.queue.held import StaleLease

pytestmark = pytest.mark.django_db


def test_pausing_a_running_exploration_takes_it_from_its_worker(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    (held,) = claims.claim("w/1", row.target_id)
    assert queues.pause_exploration(row.pk, "looks odd").state == State.PAUSED
    with pytest.raises(StaleLease):
        held.update(doing="x")
    assert claims.claim("w/1", row.target_id) == []
    assert queues.resume_exploration(row.pk).state == State.QUEUED
    assert len(claims.claim("w/1", row.target_id)) == 1


def test_who_is_waited_for_comes_before_its_equals(make_exploration: Callable[..., Any]) -> None:
    first, second = make_exploration(), make_exploration("Conv")
    private = make_exploration("Add", scope="org:7")
    stage_awaited.send(
        sender=None,
        operators=[second.operator_id, private.operator_id],
        target=second.target_id,
        setting=second.setting_id,
    )
    rows = (Exploration.objects.get(pk=row.pk) for row in (first, second, private))
    assert [row.priority for row in rows] == [Priority.NORMAL, Priority.URGENT, Priority.NORMAL]


def test_a_paused_queue_hands_out_nothing(make_exploration: Callable[..., Any], worker_with: Any) -> None:
    make_exploration()
    worker = worker_with()
    queues.pause("cpu.zen3", "maintenance")
    assert worker._next_turn() is None
    queues.resume("cpu.zen3")
    assert worker._take(worker._next_turn()) == 1


def test_discarding_tells_whoever_asks_why(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    queues.discard(row.pk, "Nobody runs this any more.")
    miss = row.operator.miss_set.get()
    assert (miss.state, miss.reason) == (MissState.DISCARDED, "Nobody runs this any more.")


def test_retrying_the_dead_gives_new_tries(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(state=State.DEAD, tries=3, error="boom", stage=1)
    row.operator.miss_set.update(state=MissState.FAILED)
    again = queues.retry(row.pk)
    assert (again.state, again.stage, again.tries, again.round, again.error) == (State.QUEUED, 0, 0, 1, "")
    assert row.operator.miss_set.get().state == MissState.PROMOTED


def test_what_is_not_possible_says_why(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    with pytest.raises(queues.NotPossible, match="it is queued, and must be paused"):
        queues.resume_exploration(row.pk)
    with pytest.raises(queues.NotPossible, match="no exploration 999"):
        queues.retry(999)
    with pytest.raises(queues.NotPossible, match="0 is the most urgent"):
        queues.prioritise(row.pk, 7)


def test_commands_do_the_same(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    out = StringIO()
    call_command("queue", "prioritise", str(row.pk), "--priority", "0", stdout=out)
    call_command("queue", "pause", stdout=out)
    call_command("queue", "list", stdout=out)
    assert "urgent" in out.getvalue()
    assert "paused: *" in out.getvalue()
    call_command("queue", "resume", stdout=out)
    call_command("queue", "pause", str(row.pk), "--reason", "odd", stdout=out)
    call_command("queue", "discard", str(row.pk), "--reason", "gone", stdout=out)
    call_command("queue", "retry", "--state", "discarded", stdout=out)
    row.refresh_from_db()
    assert (row.state, row.round) == (State.QUEUED, 1)
    assert not Pause.objects.exists()
    with pytest.raises(CommandError, match="must be paused"):
        call_command("queue", "resume", str(row.pk))
    call_command("sweep", stdout=out)
    assert "0 explorations were put back" in out.getvalue()


def test_rest_shows_and_steers(api: Any, make_exploration: Callable[..., Any], live_worker: Any) -> None:
    row = make_exploration()
    (listed,) = api.get("explorations/", state="queued,running", operator=row.operator.key).json()["results"]
    assert listed["operator"] == row.operator.key
    assert listed["asked_at"].count(".") == 1, "microseconds"
    assert api.get("explorations/", state="done").json()["count"] == 0
    for verb, body, state in (
        ("pause", {"reason": "odd"}, "paused"),
        ("resume", None, "queued"),
        ("discard", {"reason": "gone"}, "discarded"),
        ("retry", None, "queued"),
        ("prioritise", {"priority": 0}, "queued"),
    ):
        answer = api.post(f"explorations/{row.pk}/{verb}", body)
        assert (answer.status_code, answer.json()["state"]) == (200, state), verb
    assert api.get(f"explorations/{row.pk}").json()["priority"] == Priority.URGENT
    (worker,) = api.get("workers/").json()["results"]
    assert (worker["name"], worker["alive"], worker["warm"]) == ("live", True, True)
    assert api.get("misses/", operator=row.operator.key).json()["count"] == 1
    assert api.get("trials/", exploration=row.pk).json()["count"] == 0


def test_rest_pauses_and_resumes_queues(api: Any) -> None:
    answer = api.post("queues/pause", {"capability": "cpu.zen3", "reason": "maintenance"}).json()
    assert [row["capability"] for row in answer["paused"]] == ["cpu.zen3"]
    assert api.get("queues/").json() == answer
    assert api.post("queues/resume", {"capability": "cpu.zen3"}).json() == {"paused": []}


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("explorations/999/retry", None, 404, "no exploration 999"),
        ("explorations/{pk}/resume", None, 409, "must be paused"),
        ("explorations/{pk}/prioritise", {"priority": 9}, 400, "not a valid choice"),
        ("explorations/{pk}/discard", {"reason": "x" * 999}, 400, "300"),
        ("queues/pause", {"capability": "x" * 99}, 400, "80"),
    ],
)
def test_bad_operations_change_nothing(
    api: Any, make_exploration: Callable[..., Any], path: str, body: Any, status: int, says: str
) -> None:
    row = make_exploration()
    answer = api.post(path.format(pk=row.pk), body)
    assert answer.status_code == status
    assert says in answer.json()["error"]
    assert Exploration.objects.get().updated_at == row.updated_at


@pytest.mark.parametrize("query", [{"state": "asleep"}, {"operator": "x\0y"}, {"operator": "x" * 99}])
def test_bad_filters_are_refused(api: Any, query: dict[str, str]) -> None:
    assert api.get("explorations/", **query).status_code == 400


def test_steering_needs_the_scope_operate(
    api_with: Any, make_key: Any, make_exploration: Callable[..., Any]
) -> None:
    row = make_exploration()
    lookup_only = api_with(make_key("lookup"))
    assert lookup_only.get(f"explorations/{row.pk}").status_code == 200
    assert lookup_only.post(f"explorations/{row.pk}/pause").status_code == 403
    assert lookup_only.post("queues/pause", {}).status_code == 403
    assert Exploration.objects.get().state == State.QUEUED


def test_another_organisations_explorations_are_not_there(
    tenant_api: Any, api: Any, make_exploration: Callable[..., Any]
) -> None:
    row = make_exploration(scope="org:424242")
    assert tenant_api.get("explorations/").json()["count"] == 0
    assert tenant_api.get(f"explorations/{row.pk}").status_code == 404
    assert tenant_api.post(f"explorations/{row.pk}/pause").status_code == 404
    assert api.get(f"explorations/{row.pk}").status_code == 200, "the host's operators see all"
