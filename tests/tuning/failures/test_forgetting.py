"""Causes of failure do not grow without bound, and what goes is said."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.models import Organisation
from catalog.viewing import MAY, Viewer
from tests.dashboard.factory import Factory
from tests.tuning.failures.making import failed
from tuning.failures import forgetting
from tuning.failures.forgetting import forget_failures, forgotten
from tuning.models import FailureGroup, FailurePlace, Trial

pytestmark = pytest.mark.django_db
HOST = Viewer("ann", {}, MAY["operator"])
LETTERS = "abcdefgh"


@pytest.fixture
def factory() -> Factory:
    return Factory()


def caused(factory, letter, days=0, number=1, **scope) -> FailureGroup:
    at = timezone.now() - timedelta(days=days)
    failed(factory, number, detail=f"cause {letter}", at=at, **scope)
    return FailureGroup.objects.order_by("-pk")[0]


def kept() -> list[str]:
    return sorted(row.reason.removeprefix("cause ") for row in FailureGroup.objects.all())


def test_what_was_not_seen_for_long_goes_and_its_trials_stay(factory) -> None:
    caused(factory, "a", days=91)
    caused(factory, "b", days=91)
    failed(factory, 2, detail="cause b")  # seen again since
    caused(factory, "c", days=89)
    assert (forget_failures(), kept()) == (1, ["b", "c"])
    assert Trial.objects.count() == 4 and forgotten(HOST) == 1
    assert forget_failures() == 0 and forgotten(HOST) == 1


def test_beyond_so_many_the_longest_unseen_go_of_each_owner_apart(factory, configure) -> None:
    configure(failures_most=3)
    tenant = Organisation.objects.create(name="one")
    own = {"scope": f"org:{tenant.pk}", "owner": tenant}
    for days, letter in enumerate(LETTERS[:5]):
        caused(factory, letter, days=days)
    for letter in LETTERS[5:]:
        caused(factory, letter, days=50, **own)
    assert (forget_failures(), kept()) == (2, ["a", "b", "c", "f", "g", "h"])
    caused(factory, "x", **own)
    assert (forget_failures(), kept()) == (1, ["a", "b", "c", "g", "h", "x"])
    theirs = Viewer("tina", {tenant.pk: MAY["operator"]}, None, tenant.pk)
    strange = Viewer("mallory", {}, None, None)
    assert [forgotten(viewer) for viewer in (HOST, theirs, strange)] == [3, 3, 2]


def test_one_that_is_kept_stays_however_old(factory, configure) -> None:
    configure(failures_most=1)
    old, _, _ = caused(factory, "a", days=95), caused(factory, "b", days=3), caused(factory, "c")
    assert (forget_failures({old.pk}), kept()) == (1, ["a", "c"])
    assert (forget_failures(), kept()) == (1, ["c"])


def test_a_cause_that_struck_very_many_goes_in_steps(factory, monkeypatch) -> None:
    monkeypatch.setattr(forgetting, "BATCH", 2)
    for number in range(5):
        caused(factory, "a", days=95, number=number)
    left = []
    while FailureGroup.objects.exists():
        forget_failures()
        left.append(FailurePlace.objects.count())
    assert left == [3, 1, 0] and forgotten(HOST) == 1


def test_one_that_fails_again_just_then_stays(factory, monkeypatch) -> None:
    caused(factory, "a", days=95)
    found = list(forgetting._old(()))
    failed(factory, 1, detail="cause a")
    monkeypatch.setattr(forgetting, "_old", lambda kept: iter(found))
    assert forget_failures() == 0 and kept() == ["a"]
