"""A target is named in one way wherever one is taken: by its key, or as ``here``."""

from __future__ import annotations

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone

from catalog.errors import Unknown
from catalog.models import Model, Target
from catalog.selectors.targets import HERE, target_named
from dashboard.notifications.write import subjects
from tests.catalog import making
from tests.catalog.conftest import place_of, put, setting, target  # noqa: F401

# ruff: noqa: F811 - fixtures of another folder are imported by their names

pytestmark = pytest.mark.django_db


@pytest.fixture
def here(target: Any) -> Any:
    target.served_until = timezone.now() - timedelta(hours=1)
    target.save()
    return target


@pytest.mark.parametrize("name", ["t1:no", "", "Here", "t1:" + "0" * 64, "t1:" + "0" * 63 + "\0", "x" * 9999])
def test_what_is_no_targets_name(here: Target, name: str) -> None:
    with pytest.raises(Unknown, match="This target is not known: name it 'here'"):
        target_named(name)


def test_either_name_is_the_same_row(here: Target) -> None:
    assert target_named(HERE) == target_named(here.key) == here


def test_here_is_nowhere_before_any_worker_was_seen(target: Any) -> None:
    with pytest.raises(Unknown, match="No worker was ever here"):
        target_named(HERE)


@pytest.mark.parametrize(
    "path",
    [
        f"operators/{making.relu(64).key}/best?target=%s",
        f"operators/{making.relu(64).key}/implementations?target=%s",
        f"statistics/operators/{making.relu(64).key}?target=%s&setting={making.SETTING.key}",
        f"statistics/methods?target=%s&setting={making.SETTING.key}",
    ],
)
def test_over_rest_here_answers_as_the_key_does(api: Any, put: Any, here: Target, path: str) -> None:
    put(64, "eager", 1.0)
    named, by_key = api.get(path % "here"), api.get(path % here.key)
    assert (named.status_code, by_key.status_code) == (200, 200)
    moments = {"since", "until"}  # of now
    assert all(named.json()[name] == value for name, value in by_key.json().items() if name not in moments)


def test_what_is_watched_keeps_the_target_that_was_here(here: Target, put: Any) -> None:
    put(64, "eager", 1.0)
    key = making.relu(64).key
    assert subjects.operator(key, "here").key == subjects.operator(key, here.key).key
    assert subjects.operators_that({"target": "here"}).fields == {"filters": {"target": here.key}}


def test_by_command(here: Target, organisation: Any) -> None:
    call_command("add_model", "sample:resnet50", "--target", "here", stdout=StringIO())
    assert Model.objects.get().target == here
