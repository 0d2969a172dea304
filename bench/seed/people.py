"""Invented rows of what only the dashboard has: accounts, ledger, notifications, deliveries, sizes."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from datetime import timedelta

from django.apps import apps
from django.contrib.auth.models import User
from django.db.models import Model
from django.utils import timezone

from bench.seed import money as synthetic_money
from bench.seed.bulk import insert
from bench.seed.catalogue import World
from bench.seed.implementations import NAME
from catalog.models import Membership, Organisation, Role
from dashboard.notifications import models as told
from dashboard.operation.models import SizeSample
from dashboard.webhooks import models as webhooks

LOADED: tuple[type[Model], ...] = (
    *synthetic_money.LOADED,
    told.Notification,
    webhooks.Message,
    webhooks.Delivery,
    webhooks.Attempt,
)
"""Tables that ``add_rest`` fills in bulk."""

SUBSCRIPTIONS = 200
MOST_NOTIFICATIONS = 50_000
DAYS = 90
"""For which sizes were measured: what the page reads."""


def add_people(world: World) -> dict[str, dict[str, str]]:
    """Somebody who administrates the service and a viewer of the busiest tenant, with their passwords."""
    people = {}
    for name, organisation, role in (
        (f"{NAME}-admin", world.organisations[0], Role.ADMIN),
        (f"{NAME}-viewer", world.organisations[1], Role.VIEWER),
    ):
        password = secrets.token_urlsafe(12)
        user = User.objects.create_user(name, password=password)
        Membership.objects.create(
            user=user, organisation=Organisation.objects.get(pk=organisation), role=role
        )
        people[role.value] = {"user": name, "password": password}
    return people


def add_rest(world: World, say: Callable[[str], None]) -> None:
    """Ledger, notifications, deliveries and sizes."""
    say("ledger")
    synthetic_money.add_money(world)
    say("notifications and webhooks")
    for user in User.objects.filter(username__startswith=NAME):
        _notify(world, user)
    _deliver(world)
    say("sizes")
    _measure()


def _measure() -> None:
    """What every table took, each day of three months."""
    tables, now = sorted({model._meta.db_table for model in apps.get_models()}), timezone.now()
    SizeSample.objects.bulk_create(
        (
            SizeSample(
                at=now - timedelta(days=DAYS - day),
                name=name,
                rows=900 * day,
                bytes=(n + 90) ** 3 * (DAYS + day),
            )
            for day in range(DAYS)
            for n, name in enumerate(tables)
        ),
        batch_size=1000,
    )


def _notify(world: World, user: User) -> None:
    """Subscriptions to operators, and what they told."""
    numbers = [world.operators[n * 7 % world.size.known] for n in range(SUBSCRIPTIONS)]
    told.Subscription.objects.bulk_create(
        told.Subscription(
            user=user,
            subject=told.SubjectKind.OPERATOR,
            subject_key=f"{NAME}:{n}",
            operator_id=number,
            title=f"{NAME} {n}",
            on_hit=True,
        )
        for n, number in enumerate(numbers)
    )
    own = list(told.Subscription.objects.filter(user=user).order_by("pk").values_list("pk", "operator_id"))
    count = min(MOST_NOTIFICATIONS, max(world.size.usage // 200, 50))
    at_s = world.random.integers(0, world.now_s, count)
    at_s.sort()
    kinds = [happening.value for happening in told.Happening][:4]
    moments = world.moments(at_s)
    insert(
        told.Notification,
        {
            "subscription_id": [own[n % len(own)][0] for n in range(count)], "user_id": user.pk,
            "happening": [kinds[n % len(kinds)] for n in range(count)],
            "key": [f"{NAME}:{n}" for n in range(count)],
            "operator_id": [own[n % len(own)][1] for n in range(count)], "at": moments,
            "text": [f"{NAME} {n}: a hit, 1.4 times as fast as the default." for n in range(count)],
            "path": "/operators/", "count": 1, "facts": "{}", "shown": True,
            "read_at": [None if n > count - 40 else moments[n] for n in range(count)],
            "created_at": moments,
        },
    )  # fmt: skip


def _deliver(world: World) -> None:
    """An endpoint for each tenant that takes everything, and its deliveries: most arrived."""
    endpoints = [
        webhooks.Endpoint.objects.create(
            organisation_id=organisation,
            url=f"https://receiver.invalid/{NAME}/{organisation}",
            description=NAME,
            disabled_at=timezone.now(),
            disabled_reason=f"{NAME}: nothing is sent",
        )
        for organisation in world.organisations
    ]
    count = min(MOST_NOTIFICATIONS, max(world.size.usage // 200, 50))
    at_s = world.random.integers(0, world.now_s, count)
    at_s.sort()
    moments, kinds = world.moments(at_s), [kind.value for kind in webhooks.EventType]
    messages = insert(
        webhooks.Message,
        {
            "organisation_id": [endpoints[n % len(endpoints)].organisation_id for n in range(count)],
            "public_id": [f"msg_{NAME}_{n}" for n in range(count)],
            "key": [f"{NAME}:{n}" for n in range(count)],
            "event_type": [kinds[n % len(kinds)] for n in range(count)],
            "data": "{}",
            "created_at": moments,
        },
    )
    failed = [n % 29 == 0 for n in range(count)]
    ended = world.moments(at_s + 5)
    deliveries = insert(
        webhooks.Delivery,
        {
            "endpoint_id": [endpoints[n % len(endpoints)].pk for n in range(count)], "message_id": messages,
            "state": ["failed" if bad else "delivered" for bad in failed], "tries": 1, "began_at": moments,
            "next_try_at": moments, "ended_at": ended, "fence": 1,
        },
    )  # fmt: skip
    insert(
        webhooks.Attempt,
        {
            "delivery_id": deliveries,
            "at": ended,
            "status": [503 if bad else 200 for bad in failed],
            "duration_ms": 41.0,
            "error": "",
            "excerpt": NAME,
        },
    )
