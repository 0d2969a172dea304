"""Who may steer what, and what comes of two people who want different things at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection

from catalog.errors import RequestError, Unknown
from catalog.models import Miss, MissState, Organisation, Role
from catalog.viewing import MAY, Viewer
from tuning.models import Exploration, State
from tuning.queue import collecting
from tuning.queue import permissions as operating
from tuning.queue import steering as queues
from tuning.queue.permissions import NotAllowed, Order

pytestmark = pytest.mark.django_db

HOST = Viewer("ada", {}, MAY[Role.OPERATOR])
READER = Viewer("rob", {}, MAY[Role.VIEWER])


def test_who_may_steer_what(make_exploration: Callable[..., Any]) -> None:
    own, other = (Organisation.objects.create(name=name) for name in ("own", "other"))
    tenant = Viewer("tina", {own.pk: MAY[Role.OPERATOR]}, None, own.pk)
    shared = make_exploration(size=1)
    mine = make_exploration(size=2, scope=f"org:{own.pk}", owner=own)
    foreign = make_exploration(size=3, scope=f"org:{other.pk}", owner=other)
    for viewer, allowed in ((HOST, {shared.pk, mine.pk, foreign.pk}), (READER, set()), (tenant, {mine.pk})):
        done = set()
        for row in (shared, mine, foreign):
            try:
                operating.act(viewer, row.pk, Order("prioritise", viewer.name, priority=1))
                done.add(row.pk)
            except (NotAllowed, Unknown):
                pass
        assert done == allowed, viewer.name
    with pytest.raises(Unknown):
        operating.act(tenant, foreign.pk, Order("pause", "tina"))  # not even that it is there
    for verb in (
        lambda: operating.pause_queue(tenant, "*", "", "tina"),
        lambda: operating.resume_queue(tenant, "*"),
    ):
        with pytest.raises(NotAllowed, match="host organisation"):
            verb()


def test_a_tenants_misses_are_its_own_to_steer(make_miss: Callable[..., Any]) -> None:
    own = Organisation.objects.create(name="own")
    tenant = Viewer("tina", {own.pk: MAY[Role.OPERATOR]}, None, own.pk)
    shared, mine = make_miss(size=1), make_miss(size=2, scope=f"org:{own.pk}", owner=own)
    assert operating.act_on_miss(tenant, mine.pk, Order("explore", "tina")).state == MissState.PROMOTED
    with pytest.raises(NotAllowed):
        operating.act_on_miss(tenant, shared.pk, Order("explore", "tina"))
    exploration = Exploration.objects.get()
    assert (exploration.scope, exploration.owner) == (f"org:{own.pk}", own)


def test_two_people_one_winner_and_one_clear_sentence(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration()
    operating.act(HOST, row.pk, Order("discard", "ada", "nobody runs it"))
    with pytest.raises(queues.NotPossible) as refused:
        operating.act(HOST, row.pk, Order("pause", "bob"))
    assert str(refused.value) == (
        f"Cannot pause exploration {row.pk}: it is discarded (nobody runs it (discarded by ada)), "
        "and must be queued or running."
    )
    assert refused.value.status == 409


@pytest.mark.django_db(transaction=True)
def test_at_the_same_moment_only_one_of_two_conflicting_actions_is_done(
    make_exploration: Callable[..., Any], make_miss: Callable[..., Any]
) -> None:
    for size in range(5, 9):
        row, miss = make_exploration(size=size), make_miss(size=100 + size)
        both = threading.Barrier(4)
        said: list[str] = []

        def go(act: Callable[[], object], both: threading.Barrier = both, said: list[str] = said) -> None:
            both.wait()
            try:
                act()
                said.append("done")
            except queues.NotPossible as error:
                said.append(str(error))
            finally:
                connection.close()

        acts: list[Callable[[], object]] = [
            lambda row=row: operating.act(HOST, row.pk, Order("pause", "ada")),  # type: ignore[misc]
            lambda row=row: operating.act(HOST, row.pk, Order("pause", "bob")),  # type: ignore[misc]
            lambda miss=miss: operating.act_on_miss(HOST, miss.pk, Order("explore", "ada")),  # type: ignore[misc]
            lambda miss=miss: operating.act_on_miss(HOST, miss.pk, Order("explore", "bob")),  # type: ignore[misc]
        ]
        threads = [threading.Thread(target=go, args=(act,)) for act in acts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert said.count("done") == 2, said
        lost = sorted(text for text in said if text != "done")
        assert f"Cannot explore miss {miss.pk}: it is promoted" in lost[0]
        assert f"Cannot pause exploration {row.pk}: it is paused (Paused by " in lost[1]
        assert Exploration.objects.filter(operator=miss.operator).count() == 1


def test_several_at_once_stand_each_for_itself(make_exploration: Callable[..., Any]) -> None:
    rows = [make_exploration(size=n, state=state) for n, state in enumerate(("queued", "done", "queued"), 1)]
    came = operating.act_on_many(HOST, [*(row.pk for row in rows), 424242], Order("pause", "ada"))
    assert came.done == (rows[0].pk, rows[2].pk)
    assert [one.id for one in came.refused] == [rows[1].pk, 424242]
    assert "it is done" in came.refused[0].error and "no exploration 424242" in came.refused[1].error


@pytest.mark.parametrize(
    ("ids", "verb", "says"),
    [([], "pause", "1 to 200"), ([1] * 201, "pause", "1 to 200"), ([1], "x", "one of")],
)
def test_orders_that_cannot_be_change_nothing(
    make_exploration: Callable[..., Any], ids: list[int], verb: str, says: str
) -> None:
    row = make_exploration()
    with pytest.raises(RequestError, match=says):
        operating.act_on_many(HOST, ids, Order(verb, "ada"))
    assert Exploration.objects.get(pk=row.pk).state == State.QUEUED


def test_a_discarded_miss_is_explored_by_hand_and_keeps_its_urgency(make_miss: Callable[..., Any]) -> None:
    miss = make_miss(state=MissState.DISCARDED, reason="too large", calls=7)
    assert collecting.explore_now(miss.pk, 0).state == MissState.PROMOTED
    row = Exploration.objects.get()
    assert (row.priority, row.calls, row.state) == (0, 7, State.QUEUED)
    assert row.worth > 0


def test_exploring_by_hand_begins_a_new_round_of_what_had_ended(make_exploration: Callable[..., Any]) -> None:
    row = make_exploration(state=State.UNSUPPORTED, stage=1)
    miss = row.operator.miss_set.get()
    Miss.objects.update(state=MissState.UNSUPPORTED, reason="no route")
    collecting.explore_now(miss.pk)
    row.refresh_from_db()
    assert (row.state, row.stage, row.round, row.priority) == (State.QUEUED, 0, 1, 1)


def test_what_is_being_explored_is_discarded_where_it_is(make_exploration: Callable[..., Any]) -> None:
    miss = make_exploration().operator.miss_set.get()
    with pytest.raises(queues.NotPossible, match="Discard its exploration instead"):
        collecting.discard_miss(miss.pk, "no")


def test_a_known_one_is_not_explored_by_hand(make_miss: Callable[..., Any]) -> None:
    miss = make_miss(state=MissState.EXPLORED)
    with pytest.raises(queues.NotPossible, match="it is explored"):
        collecting.explore_now(miss.pk)
    with pytest.raises(queues.NotPossible, match="no miss 999"):
        collecting.explore_now(999)
