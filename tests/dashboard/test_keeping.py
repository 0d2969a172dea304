"""What one test has made serves the next."""

from types import SimpleNamespace

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.utils import timezone

from tests.dashboard import keeping
from tests.databases import empty


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="rows are kept for SQLite alone")
def test_what_a_test_that_commits_has_made_is_put_in_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, now = [], timezone.now()
    monkeypatch.setattr(keeping, "timezone", SimpleNamespace(now=lambda: now))  # no hour ends meanwhile

    def make() -> User:
        made.append(User.objects.create_user(f"ada {len(made)}"))
        return made[-1]

    for _ in range(3):
        User.objects.create_user("admin")  # whose number must be what it was
        assert keeping.kept("somebody", make, lambda age: None) == User.objects.get(username="ada 0")
        empty(connection)
    assert len(made) == 1
