"""What one test has made serves the next."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from tests.dashboard import keeping
from tests.dashboard.keeping import kept
from tests.databases import empty


@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(connection.vendor != "sqlite", reason="rows are kept for SQLite alone")
def test_what_a_test_that_commits_has_made_is_put_in_for_the_next_one() -> None:
    made = []

    def make() -> User:
        made.append(User.objects.create_user(f"ada {len(made)}"))
        return made[-1]

    for _ in range(3):
        User.objects.create_user("admin")  # whose number must be what it was
        assert kept("somebody", make, lambda age: None) == User.objects.get(username="ada 0")
        empty(connection)
    assert len(made) == 1


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "sqlite", reason="rows are kept for SQLite alone")
def test_what_one_process_has_made_is_put_in_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def make() -> int:
        made.append(User.objects.create_user(f"grace {len(made)}").pk)
        return made[-1]

    def asked() -> tuple[int, list[str]]:
        """By a process that knows nothing."""
        monkeypatch.setattr(keeping, "_kept", {})
        with transaction.atomic():
            number = kept("somebody else", make, lambda age: None)
            names = list(User.objects.values_list("username", flat=True))
            transaction.set_rollback(True)
        return number, names

    first = asked()
    assert first[1] == ["grace 0"] and asked() == first and len(made) == 1
    monkeypatch.setattr(keeping, "FRESH", timedelta(0))
    assert asked()[1] == ["grace 1"], "what is old is made anew"
