"""Something in the inbox, for screenshots and tours: told of by the real gathering."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from catalog.models import Job, Operator, Usage
from catalog.viewing import viewer_of
from dashboard.notifications import subscribing
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Notification, Subscription
from dashboard.notifications.write import subjects
from tests.dashboard.factory import Factory


def told(factory: Factory, name: str = "admin") -> None:
    """A person who watches a filter, an operator and a job, and what has happened to them."""
    user = User.objects.get(username=name)
    User.objects.filter(pk=user.pk, email="").update(email=f"{name}@example.com")
    user.refresh_from_db()
    viewer, now = viewer_of(user), timezone.now()
    operator = Operator.objects.filter(op_type="MatMul").order_by("pk")[0]
    job = Job.objects.order_by("pk")[0]
    wishes = (
        (subjects.operators_that({"q": "softmax"}), ("explored", "best_changed"), ("page", "email"), "daily"),
        (subjects.operator(operator.key), ("best_changed", "withdrawn"), ("page", "push"), "at_once"),
        (subjects.job(viewer, job.pk), ("hit", "withdrawn", "explored"), ("page",), "hourly"),
    )
    for about, events, channels, digest in wishes:
        subscribing.subscribe(
            user, viewer, about, subscribing.wish(about.subject, events, channels, digest, user)
        )
    Subscription.objects.update(created_at=now - timedelta(days=30))
    Usage.objects.create(
        organisation=job.organisation, job=job, operator=operator, method="compiler", route="tvm",
        median_us=100, default_us=142, served_at=now, node="n", segment="told", offset=0, item=0,
    )  # fmt: skip
    gather()
    half = list(Notification.objects.order_by("pk").values_list("pk", flat=True)[::2])
    Notification.objects.filter(pk__in=half).update(read_at=now)
