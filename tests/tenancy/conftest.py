"""Everybody's rows, planted once a module."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
from django.db import transaction

from tests.tenancy.world import World, plant, without_the_first


@pytest.fixture(scope="module")
def planted(django_db_setup: None, django_db_blocker: Any) -> Iterator[World]:
    """In a transaction around those of the module's tests: each takes back what it did to the rows."""
    with django_db_blocker.unblock(), transaction.atomic():
        yield plant(without_the_first())
        transaction.set_rollback(True)


@pytest.fixture
def world(planted: World, db: None) -> World:
    return deepcopy(planted)
