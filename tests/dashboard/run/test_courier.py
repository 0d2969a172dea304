"""A courier succeeds a dead one of its machine at once, and a living or a far one when its lease ends."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from catalog import alive
from catalog.steps import LASTS, lasting
from dashboard.run.courier import NAME, Chore, Courier
from tuning.queue.leases import Holder

pytestmark = pytest.mark.django_db
HERE = socket.gethostname()


def dead() -> int:
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


@pytest.mark.parametrize(
    ("host", "pid", "at_once"),
    [(HERE, None, True), (HERE, os.getppid(), False), ("elsewhere", None, False)],
    ids=["dead", "alive", "elsewhere"],
)  # fmt: skip
def test_whose_lease_need_not_be_waited_for(host: str, pid: int | None, at_once: bool) -> None:
    assert Holder(NAME, f"{host}-{pid or dead()}", lease_s=30.0).hold()
    courier = Courier(())
    courier._succeed()
    assert courier._holder.hold() is at_once


@pytest.mark.django_db(transaction=True)
def test_it_shows_that_it_lives_before_its_first_chore(
    configure: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else who hangs in that one is taken for a process that starts, for minutes."""
    configure(alive=tmp_path)
    monkeypatch.setattr(alive, "_said_at", {})
    courier = Courier(chores=())
    seen: list[bool] = []

    def hangs() -> None:
        seen.append((tmp_path / NAME).exists())
        courier.stop.set()

    monkeypatch.setattr(courier, "round", hangs)
    courier.run()
    assert seen == [True]


def breaks() -> None:
    raise KeyError("a bug")


ran: list[int] = []


def works() -> None:
    ran.append(1)


def test_a_chore_that_fails_leaves_the_others_done_and_is_told_of(db: None) -> None:
    ran.clear()
    courier = Courier(tuple(Chore(f"{__name__}.{name}", 0.0) for name in ("works", "breaks", "works")))
    for _ in range(LASTS):
        courier.round()
    assert len(ran) == 2 * LASTS
    assert [one.step for one in lasting()] == ["the chore breaks"]
