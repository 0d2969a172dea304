"""Whose turn it is on a worker: packs give way, uploads are work like any other, and are rung for."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from catalog.models import Model
from tests import uploading
from tests.tuning import fakes
from tests.tuning.graph import making
from tuning.models import Exploration, State
from tuning.queue import steering
from tuning.queue.shares import charge, payer
from tuning.queue.sharing import Work, WorkTurn
from tuning.uploads import sandboxed
from tuning.uploads.intake import UploadWish, receive
from tuning.uploads.models import Upload
from tuning.worker.leader import idle_with_work

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def give(organisation: Any, target_row: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Upload]:
    """``give()``: a small model that waits to be taken apart."""
    monkeypatch.setattr(sandboxed, "take_apart", uploading.in_process)

    def one(owner: Any = None) -> Upload:
        wish = UploadWish(name="m", target=target_row)
        read = BytesIO(making.relu([4]).SerializeToString()).read
        return receive(read, wish, owner or organisation, None, 1 << 20)

    return one


def test_a_pack_gives_way_after_the_slice_that_runs(
    worker_with: Any, make_exploration: Any, tenant: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Three first results were claimed together; another's comes while the first of them is built."""
    mine = [make_exploration(size=size) for size in (1, 2, 3)]
    theirs: list[Exploration] = []

    def asked_meanwhile(self: Any, *args: Any) -> Any:
        if not theirs:
            charge(payer(None), 60.0)
            theirs.append(make_exploration(size=9, asked_by=tenant))
        return original(self, *args)

    original = fakes.FakeLaboratory.build
    monkeypatch.setattr(fakes.FakeLaboratory, "build", asked_meanwhile)
    worker_with().run_until_idle()
    lines = [json.loads(line) for line in (tmp_path / "laboratory.jsonl").read_text().splitlines()]
    built = list(dict.fromkeys(line["operator"] for line in lines if line["what"] == "build"))
    first, *rest = (row.operator.key for row in mine)
    assert built == [first, theirs[0].operator.key, *rest]
    assert not Exploration.objects.exclude(state=State.DONE).exists()


def test_a_worker_takes_uploads_and_the_leader_rings_for_them(
    worker_with: Any, give: Callable[..., Upload], target_row: Any
) -> None:
    worker = worker_with()
    assert idle_with_work() == set()
    row = give()
    assert idle_with_work() == {target_row.capability}
    assert worker.run_until_idle() > 0
    row.refresh_from_db()
    assert row.state == "done" and idle_with_work() == set()


def test_uploads_go_on_while_queues_are_paused(
    worker_with: Any, give: Callable[..., Upload], make_exploration: Any
) -> None:
    """They measure nothing."""
    waiting = make_exploration(size=5)
    give()
    steering.pause("*", "for now")
    worker_with().run_until_idle()
    waiting.refresh_from_db()
    assert Model.objects.count() == 1 and waiting.state == State.QUEUED


def test_one_tenants_uploads_do_not_hold_anothers_first_result_up(
    worker_with: Any, give: Callable[..., Upload], make_exploration: Any, tenant: Any
) -> None:
    give(owner=tenant)
    charge(tenant.pk, 60.0)
    make_exploration(size=5)
    assert worker_with()._next_turn() == WorkTurn(payer(None), Work.FIRST)
