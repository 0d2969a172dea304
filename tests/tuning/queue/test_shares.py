"""What each organisation has had, in the database; and whose explorations make room for whose."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.utils import timezone

from catalog.models import Organisation
from tuning.models import Stage, WorkerShare
from tuning.queue import shares
from tuning.queue.claims import EVERYTHING
from tuning.queue.shares import BadWeight, charge, charged, goes_before, set_weight, stages_waiting
from tuning.queue.sharing import EXPECTED_S, Work, WorkTurn

pytestmark = pytest.mark.django_db


def recent(organisation: Any) -> float:
    return shares.shares([organisation.pk])[organisation.pk].recent_s


def test_seconds_are_counted_and_forgotten_by_halves(tenant: Any, configure: Any) -> None:
    configure(share_half_life_s=86_400.0)
    charge(tenant.pk, 40.0)
    charge(tenant.pk, 40.0)
    assert recent(tenant) == pytest.approx(80.0, abs=1)
    WorkerShare.objects.update(at=timezone.now() - timedelta(days=1))
    assert recent(tenant) == pytest.approx(40.0, abs=1)
    assert WorkerShare.objects.get().spent_s == 80.0


@pytest.fixture
def takes_two_s(configure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece, and nothing of it is forgotten meanwhile."""
    configure(share_half_life_s=86_400.0)
    monkeypatch.setattr(shares, "time", SimpleNamespace(monotonic=itertools.count(step=2.0).__next__))


@pytest.mark.usefixtures("takes_two_s")
def test_a_piece_is_charged_when_it_begins_so_that_other_workers_see_it(tenant: Any) -> None:
    with charged(tenant.pk, Work.TUNE):
        assert recent(tenant) == pytest.approx(EXPECTED_S[Work.TUNE], rel=0.01)
    assert recent(tenant) == pytest.approx(2.0, rel=0.01)


@pytest.mark.usefixtures("takes_two_s")
def test_what_breaks_is_charged_too(tenant: Any) -> None:
    with pytest.raises(RuntimeError), charged(tenant.pk, Work.FIRST):
        raise RuntimeError
    assert WorkerShare.objects.get().spent_s == pytest.approx(2.0)


@pytest.mark.parametrize("weight", [0.0, -1.0, 101.0, float("nan"), float("inf")])
def test_a_weight_beyond_the_bounds_is_refused(tenant: Any, weight: float) -> None:
    with pytest.raises(BadWeight, match="A weight is a number"):
        set_weight(tenant, weight)
    assert not WorkerShare.objects.exists()


def test_what_nobody_asked_for_is_the_hosts(
    organisation: Any, tenant: Any, make_exploration: Callable[..., Any]
) -> None:
    own = make_exploration(size=1, stage=Stage.TUNE)
    make_exploration(size=2, stage=Stage.CONTEST, asked_by=tenant)
    waiting = stages_waiting(own.target_id, EVERYTHING)
    assert set(waiting) == {WorkTurn(organisation.pk, Work.TUNE), WorkTurn(tenant.pk, Work.CONTEST)}


def test_a_flood_of_first_results_of_one_does_not_stop_anothers_tuning(
    tenant: Any, make_exploration: Callable[..., Any]
) -> None:
    """Else a tenant who asks for something new all the time would keep everybody else from being tuned."""
    other = Organisation.objects.create(name="Other")
    tuning = make_exploration(size=1, stage=Stage.TUNE, asked_by=other)
    flood = make_exploration(size=2, stage=Stage.FIRST, asked_by=tenant)
    charge(tenant.pk, 300.0)
    charge(other.pk, EXPECTED_S[Work.TUNE])
    assert not goes_before(tuning, EVERYTHING).filter(stage__lt=Stage.TUNE).exists()
    WorkerShare.objects.filter(organisation=tenant).update(recent_s=0.0)
    assert [row.pk for row in goes_before(tuning, EVERYTHING)] == [flood.pk, tuning.pk]


def test_ones_own_lower_stages_always_go_before(tenant: Any, make_exploration: Callable[..., Any]) -> None:
    tuning = make_exploration(size=1, stage=Stage.TUNE, asked_by=tenant)
    first = make_exploration(size=2, stage=Stage.FIRST, asked_by=tenant)
    charge(tenant.pk, 300.0)
    assert goes_before(tuning, EVERYTHING).filter(stage__lt=Stage.TUNE).get().pk == first.pk
