"""What was revoked is never used again: however long a machine was away, whatever its clocks say."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.best import revoked
from catalog.best.withdrawing import withdraw
from catalog.models import Implementation
from opatlas.client import Refused, steps
from opatlas.client.cache import memory
from tests.opatlas.load.kernels import add_operator


def revoke_as_of(published, ago_s):
    """Revoked so long ago; and the service reads it anew."""
    row = published.implementation
    withdraw(Implementation.objects.filter(pk=row.pk), "it is wrong")
    Implementation.objects.filter(pk=row.pk).update(revoked_at=timezone.now() - timedelta(seconds=ago_s))
    revoked.forget()


def test_a_machine_that_was_away_for_a_day_hears_of_all_that_was_revoked(publish_add, job, monkeypatch):
    made = publish_add()
    publish_add(999)
    job().lookup(add_operator())
    held = job(offline=True).lookup(add_operator())
    revoke_as_of(made, 12 * 3600)
    with sqlite3.connect(job().store.path) as cache:  # as if it had asked a day ago
        cache.execute("UPDATE told SET until = ?", (str(int((time.time() - 86400) * 1e6)),))
    cache.close()
    asks_nobody = job(offline=True)
    assert asks_nobody.lookup(add_operator()), "it knows no better"
    job().lookup(add_operator(999))
    monkeypatch.setattr(steps, "LOOK_S", 0.0)
    monkeypatch.setattr(memory, "LOOK_S", 0.0)
    assert not asks_nobody.lookup(add_operator()) and not job(offline=True).lookup(add_operator())
    with pytest.raises(Refused, match="revoked"):
        held.load()


def test_a_machine_that_was_never_told_hears_of_all_that_ever_was(publish_add, job):
    made = publish_add()
    publish_add(999)
    revoke_as_of(made, 86400 * 400)
    job().lookup(add_operator(999))
    assert job(offline=True).revoked == {made.implementation.artifact.sha256}
    job().forget_everything()
    assert job(offline=True).revoked == {made.implementation.artifact.sha256}


@pytest.mark.parametrize("ahead_s", [-86400 * 3, 86400 * 3])
def test_what_was_revoked_stays_so_whatever_the_clocks_say(publish_add, job, monkeypatch, ahead_s):
    made = publish_add()
    publish_add(999)
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda now=time.time: now() + ahead_s)
        job().lookup(add_operator())
    monkeypatch.setattr(revoked, "MOST", 1)
    revoke_as_of(made, 3600)
    before = job()
    told = before.store.told_until()
    # The service's clock was ahead as well when it was asked.
    assert before.store.revoke([], told, str(int((time.time() + 86400) * 1e6)))
    before.lookup(add_operator(999))
    assert not job(offline=True).lookup(add_operator()), "offline too"
    assert made.implementation.artifact.sha256 in job().revoked


def test_by_a_clock_that_was_ahead_nothing_survives_that_all_was_revoked(publish_add, job, monkeypatch):
    publish_add()
    with monkeypatch.context() as wrong:
        wrong.setattr(time, "time", lambda now=time.time: now() + 86400)
        job().lookup(add_operator())
    assert job(offline=True).lookup(add_operator())
    assert job().store.revoke_all()
    assert not job(offline=True).lookup(add_operator())


def test_a_cache_that_was_begun_anew_is_told_from_the_beginning(publish_add, job):
    publish_add()
    client = job()
    client.lookup(add_operator())
    assert (told := client.store.told_until()) != "0"
    client.store.clear()
    assert client.store.told_until() == told, "what was revoked is still known"
    client.store._set_aside(ValueError("it is damaged"))
    assert client.store.told_until() == "0"
    assert client.store.revoke(["c" * 64], since=told, until=told)
    assert client.store.told_until() == "0", "a request that was under way meanwhile"
