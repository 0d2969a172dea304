"""A service with a host's people, and alerts that can be let grow old."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db.models import F
from django.utils import timezone

from catalog.models import Membership
from catalog.registry import default_organisation
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.models import Alert
from tests.dashboard.notifications.conftest import World
from tuning.models import Worker


@pytest.fixture
def host(world: World) -> User:
    """An operator of who runs the service."""
    user = world.member("host", default_organisation())
    Membership.objects.filter(user=user).update(role="operator")
    return user


@pytest.fixture
def silent(world: World) -> Worker:
    """A worker that was stopped and said nothing."""
    heard = timezone.now() - timedelta(minutes=2)
    return Worker.objects.create(
        name="w0@far", host="far", pid=1, target=world.factory.target, memory_bytes=1, last_seen_at=heard
    )


def comes_back(worker: Worker) -> None:
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=timezone.now())
    watch()


def falls_silent(worker: Worker) -> None:
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=timezone.now() - timedelta(minutes=2))
    watch()


def time_passes(seconds: float) -> None:
    """What is gone is gone for that much longer."""
    Alert.objects.update(gone_at=F("gone_at") - timedelta(seconds=seconds))
    watch()
