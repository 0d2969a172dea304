"""Something in the inbox, for screenshots and tours: told of by the real gathering."""

from __future__ import annotations

from datetime import timedelta

from django.contrib.auth.models import User
from django.utils import timezone

from catalog.models import Job, Operator, Usage
from catalog.viewing import viewer_of
from dashboard.notifications import subscribing
from dashboard.notifications.alerts.watching import watch
from dashboard.notifications.find.gathering import gather
from dashboard.notifications.models import Alert, AlertDeed, Notification, Subscription
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


def alerts_of(factory: Factory) -> None:
    """Alerts in every state, the first fired by the real rules."""
    watch()
    now = timezone.now()
    where = factory.target.capability
    made = (
        ("failing", "error", "firing", f"{where}: tvm failed on all of its last 14 trials of 6 operators: "
         "signal # (SIGSEGV) in the child.", {"capability": where, "route": "tvm", "trials": 14,
         "operators": 6, "status": "crashed", "reason": "signal # (SIGSEGV) in the child"}),
        ("queue_old", "warning", "acknowledged", f"{where}: 3 first results wait, the oldest since 2 hours.",
         {"capability": where, "waiting": 3, "limit_s": 1800.0}),
        ("hits_falling", "warning", "resolved", "61 per cent of the last 1,204 lookups hit, 97 per cent did "
         "in the week before.", {"rate": 0.61, "usual": 0.97, "lookups": 1204}),
    )  # fmt: skip
    for number, (rule, severity, state, text, facts) in enumerate(made):
        at = now - timedelta(minutes=7 + 90 * number)
        over = now if state == "resolved" else None
        if rule == "failing":
            facts = {**facts, "since": at.isoformat()}
        alert = Alert.objects.create(
            rule=rule, cause=f"{rule}:{factory.target.pk}:made", severity=severity, state=state, text=text,
            path="/queues/", facts=facts, told=True, fired_at=at, seen_at=now, resolved_at=over,
            ended_at=over, acknowledged_by="ada" if state == "acknowledged" else "",
        )  # fmt: skip
        AlertDeed.objects.create(alert=alert, what="fired", told=True, at=at)
        if state != "firing":
            by = "ada" if state == "acknowledged" else ""
            AlertDeed.objects.create(
                alert=alert, what=state, by=by, detail="I look into it." if by else "The cause is gone.",
                told=True, at=at + timedelta(minutes=4),
            )  # fmt: skip
