"""People who look at pages, and a catalogue for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.dashboard.factory import Factory, full_catalogue
from tests.dashboard.serving import find_chromium, headless
from tests.dashboard.statements import statements_of
from tests.services import or_skip
from tests.tuning.live import Live, measuring


@pytest.fixture
def administrator(db: None) -> User:
    return User.objects.create_superuser("admin", password="admin")


@pytest.fixture
def pages(administrator: User) -> Client:
    """A browser without JavaScript, logged in as an administrator."""
    client = Client()
    client.force_login(administrator)
    return client


@pytest.fixture
def reader(db: None) -> Client:
    """Logged in as somebody who administrates nothing."""
    client = Client()
    client.force_login(User.objects.create_user("reader", password="reader"))
    return client


@pytest.fixture
def catalogue(db: None) -> Factory:
    return full_catalogue(hours=30)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    with headless(or_skip(find_chromium)) as browser:
        yield browser


@pytest.fixture
def live_service(chromium: Any, tmp_path: Path, django_db_blocker: Any) -> Iterator[Live]:
    """After the browser: with its event loop running Django keeps connections by context, not by thread."""
    with django_db_blocker.unblock(), measuring(tmp_path) as service:
        yield service


@pytest.fixture
def queries_of(pages: Client) -> Callable[[str], int]:
    """How many statements a page takes."""

    def count(path: str) -> int:
        assert pages.get(path).status_code == 200
        found = statements_of(pages, path, again=True)
        assert found is not None
        return found

    return count
