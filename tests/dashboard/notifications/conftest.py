"""Two organisations, people in them, and something to happen."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from catalog.models import BestChange, Implementation, Job, Membership, Operator, Organisation, Usage
from catalog.viewing import viewer_of
from dashboard.notifications import subscribing
from dashboard.notifications.models import Cursor, Subscription
from dashboard.notifications.write import subjects
from tests.dashboard.factory import Factory
from tuning.models import Exploration

EVERYTHING = ("hit", "explored", "best_changed", "withdrawn")


class World:
    """Makes what notifications are about."""

    def __init__(self) -> None:
        self.factory = Factory()
        # A tenant like others: the default organisation may run the service.
        self.home = self.factory.organisation = Organisation.objects.create(name="acme")
        self.other = Organisation.objects.create(name="somebody else")
        self.person = self.member("ada", self.home)
        self.stranger = self.member("mallory", self.other)
        self.operator = self.factory.operator("MatMul", "MatMul 512×512, 512×512 float32")
        self._items = 0

    def member(self, name: str, organisation: Organisation) -> User:
        user = User.objects.create_user(name, f"{name}@example.com", "password")
        Membership.objects.create(user=user, organisation=organisation)
        return user

    def watch(self, user: User | None = None, about: Any = None, **wish: Any) -> Subscription:
        """A subscription of ``user`` to ``about`` (the operator), told of everything by page, at once."""
        user = user or self.person
        about = about or subjects.operator(self.operator.key)
        wanted = subscribing.wish(
            about.subject,
            wish.get("events", EVERYTHING),
            wish.get("channels", ("page",)),
            wish.get("digest", "at_once"),
            user,
        )
        row, _ = subscribing.subscribe(user, viewer_of(user), about, wanted)
        # It was there before anything that the test lets happen.
        Subscription.objects.filter(pk=row.pk).update(created_at=timezone.now() - timedelta(hours=1))
        return row

    def job(self, name: str = "train", organisation: Organisation | None = None) -> Job:
        return Job.objects.get_or_create(organisation=organisation or self.home, name=name)[0]

    def hit(
        self, times: int = 1, operator: Operator | None = None, job: Job | None = None, **more: Any
    ) -> list[Usage]:
        job = job or self.job()
        made = []
        for _ in range(times):
            self._items += 1
            values = {
                "organisation": job.organisation, "job": job, "operator": operator or self.operator,
                "method": "compiler", "route": "halide", "median_us": 100.0, "default_us": 210.0,
                "served_at": timezone.now(), "node": "n", "segment": "s", "offset": self._items, "item": 0,
            }  # fmt: skip
            made.append(Usage.objects.create(**(values | more)))
        return made

    def implementation(self, route: str = "halide", ratio: float = 2.1, **more: Any) -> Implementation:
        method = {"eager": "library", "cpp": "manual"}.get(route, "compiler")
        row, measured = self.factory._measured(
            more.pop("operator", self.operator), route, method, "as built", 210.0, ratio
        )
        measured.default_route = "eager"
        measured.save()
        if more:
            Implementation.objects.filter(pk=row.pk).update(**more)
            row.refresh_from_db()
        return row

    def change(self, before: Implementation | None, after: Implementation | None, **more: Any) -> BestChange:
        row = after or before
        assert row is not None
        place = {"operator": row.operator, "target": row.target, "setting": row.setting, "scope": row.scope}
        return BestChange.objects.create(**(place | more), before=before, after=after, reason="faster")

    def explored(self, state: str = "done", **more: Any) -> Exploration:
        now = timezone.now()
        values = {"first_result_at": now - timedelta(seconds=30), "finished_at": now, "asked_at": now}
        values["asked_at"] = now - timedelta(seconds=34)
        return self.factory.explore(more.pop("operator", self.operator), state, **(values | more))


@pytest.fixture
def world(db: None) -> World:
    made = World()
    Cursor.objects.all().delete()
    return made
