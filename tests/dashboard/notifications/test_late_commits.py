"""On PostgreSQL a lower number may be committed after a higher one; tests/test_on_postgres.py asks it."""

import os
import threading

import pytest
from django.db import connection, connections, transaction

from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Notification


@pytest.mark.skipif(
    not os.environ.get("DATABASE_URL", "").startswith("postgres"),
    reason="SQLite lets nobody commit late; tests/test_on_postgres.py runs this",
)
@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_ends_late_is_told_and_counted_once(world):
    """Two transactions: the first takes its number first and ends last."""
    assert connection.vendor == "postgresql"
    world.watch()
    world.hit()
    after = world.implementation()
    gather()
    written, go_on = threading.Event(), threading.Event()

    def slow():
        try:
            with transaction.atomic():
                world.hit(2)
                world.change(None, after)
                written.set()
                assert go_on.wait(30)
        finally:
            connections.close_all()

    thread = threading.Thread(target=slow)
    thread.start()
    assert written.wait(30)
    world.hit(3)  # higher numbers, there at once
    world.change(after, world.implementation("tvm", 3.0))
    gather()
    assert Notification.objects.get(happening="hit").count == 4
    assert Notification.objects.filter(happening="best_changed").count() == 1
    go_on.set()
    thread.join()
    for _ in range(2):
        gather()
    assert Notification.objects.get(happening="hit").count == 6
    assert Notification.objects.filter(happening="best_changed").count() == 2
