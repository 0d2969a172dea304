"""Who wants to be told what, what there was to tell, and what became of telling it."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from catalog.models import Job, Model, Operator, Organisation, Setting, Target


class SubjectKind(models.TextChoices):
    """What a subscription is about."""

    OPERATOR = "operator"  # anywhere, or in one place (target and setting)
    JOB = "job"  # its own hits, and whatever happens to the operators that it asked for
    MODEL = "model"  # its operators
    FILTER = "filter"  # operators that pass a filter of the operators' list
    SERVICE = "service"  # whether it works: for who runs it
    ACCOUNT = "account"  # an organisation's money: for who pays


class Happening(models.TextChoices):
    """What people are told of."""

    HIT = "hit", "A hit was served"
    EXPLORED = "explored", "An exploration ended"
    BEST_CHANGED = "best_changed", "The best changed"
    WITHDRAWN = "withdrawn", "An implementation was withdrawn"
    SILENT = "silent", "A target's workers fell silent"
    FAILING = "failing", "A route fails on every trial"
    DISTURBED = "disturbed", "A machine is too disturbed to measure on"
    QUEUE_OLD = "queue_old", "First results wait too long"
    HITS_FALLING = "hits_falling", "The hit rate falls"
    REGRESSED = "regressed", "A best became slower"
    NEW_FAILURE = "new_failure", "Something fails for a new cause"
    STEP_FAILING = "step_failing", "A step of the service fails"
    SPEND = "spend", "Credit ends soon"
    SPEND_SUDDEN = "spend_sudden", "Spending rises suddenly"
    TEST = "test", "A test message"


HAPPENINGS = (Happening.HIT, Happening.EXPLORED, Happening.BEST_CHANGED, Happening.WITHDRAWN)
"""Those of operators that somebody can ask for."""

OF_SERVICE = (
    Happening.SILENT,
    Happening.FAILING,
    Happening.DISTURBED,
    Happening.QUEUE_OLD,
    Happening.HITS_FALLING,
    Happening.REGRESSED,
    Happening.NEW_FAILURE,
    Happening.STEP_FAILING,
)
"""Those of the service itself."""

OF_ACCOUNT = (Happening.SPEND, Happening.SPEND_SUDDEN)
"""Those of an organisation's money."""

ALERTING = (*OF_SERVICE, *OF_ACCOUNT)
"""What is an alert while it lasts (``dashboard.notifications.alerts``)."""

EVERY = (*HAPPENINGS, *ALERTING)
"""All that somebody can ask for."""


class Digest(models.TextChoices):
    """How often messages leave. The page never waits."""

    AT_ONCE = "at_once", "At once"
    HOURLY = "hourly", "Once an hour"
    DAILY = "daily", "Once a day"


def _by_page() -> list[str]:
    return ["page"]


class Subscription(models.Model):
    """One person's wish to be told. ``organisation``: whose private rows it may tell of beside the shared
    catalogue; None is everything that the person sees (who runs the service)."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="subscriptions")
    organisation = models.ForeignKey(
        Organisation, models.CASCADE, null=True, blank=True, related_name="subscriptions"
    )
    subject = models.CharField(max_length=10, choices=SubjectKind)
    # Names the subject within its organisation: one subscription for each (notifications.write.subjects).
    subject_key = models.CharField(max_length=100)
    title = models.CharField(max_length=300)  # how people read it
    operator = models.ForeignKey(Operator, models.CASCADE, null=True, blank=True, related_name="+")
    target = models.ForeignKey(Target, models.CASCADE, null=True, blank=True, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, null=True, blank=True, related_name="+")
    job = models.ForeignKey(Job, models.CASCADE, null=True, blank=True, related_name="+")
    model = models.ForeignKey(Model, models.CASCADE, null=True, blank=True, related_name="+")
    filters = models.JSONField(
        default=dict
    )  # q, op_type, dtype, method, target (its key); empty ones left out
    on_hit = models.BooleanField(default=False)
    on_explored = models.BooleanField(default=True)
    on_best_changed = models.BooleanField(default=True)
    on_withdrawn = models.BooleanField(default=True)
    on_silent = models.BooleanField(default=False)
    on_failing = models.BooleanField(default=False, db_default=False)
    on_disturbed = models.BooleanField(default=False, db_default=False)
    on_queue_old = models.BooleanField(default=False, db_default=False)
    on_hits_falling = models.BooleanField(default=False, db_default=False)
    on_regressed = models.BooleanField(default=False, db_default=False)
    on_new_failure = models.BooleanField(default=False, db_default=False)
    on_step_failing = models.BooleanField(default=False, db_default=False)
    on_spend = models.BooleanField(default=False, db_default=False)
    on_spend_sudden = models.BooleanField(default=False, db_default=False)
    told_by = models.JSONField(default=_by_page)  # names of channels (``channels.registry``)
    digest = models.CharField(max_length=10, choices=Digest, default=Digest.AT_ONCE)
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "subject_key"], name="one_subscription_per_subject"),
            models.CheckConstraint(
                condition=Q(subject="operator", operator__isnull=False, job=None, model=None)
                | Q(subject="job", job__isnull=False, operator=None, model=None)
                | Q(subject="model", model__isnull=False, operator=None, job=None)
                | Q(subject__in=["filter", "service", "account"], operator=None, job=None, model=None),
                name="subscription_has_its_subject",
            ),
        ]
        indexes = [
            models.Index(fields=["subject"], condition=Q(on_hit=True), name="subscriptions_to_hits"),
        ]

    def __str__(self) -> str:
        return self.title

    @property
    def happenings(self) -> list[Happening]:
        """What it wants to be told of."""
        return [one for one in EVERY if getattr(self, f"on_{one.value}")]


class Notification(models.Model):
    """One thing that one subscription was told. Never twice: ``key`` names what happened.

    Hits are coalesced: the first of an operator by a job is told, later ones raise ``count`` and ``text``
    follows (for digests within one digest's time).
    """

    subscription = models.ForeignKey(
        Subscription, models.SET_NULL, null=True, blank=True, related_name="notifications"
    )
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="notifications")
    organisation = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")
    happening = models.CharField(max_length=20, choices=Happening)
    key = models.CharField(max_length=120)  # "change:17", "explored:8:1732183200.5", "hit:3:9"
    operator = models.ForeignKey(Operator, models.CASCADE, null=True, blank=True, related_name="+")
    at = models.DateTimeField()  # when it happened; of hits the latest
    text = models.CharField(max_length=160)  # plain: any device can show or speak it
    path = models.CharField(max_length=300)  # where to look, from the service's root
    count = models.PositiveIntegerField(default=1)
    facts = models.JSONField(default=dict)  # what the text was made of
    # Whether it stands in the inbox: not where another subscription of the same person told the same.
    shown = models.BooleanField(default=True)
    read_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["subscription", "key"], name="one_notification_per_event")
        ]
        indexes = [
            models.Index(fields=["user", "key"], name="notifications_by_key"),
            models.Index(fields=["user", "-id"], condition=Q(shown=True), name="inbox"),
            models.Index(fields=["user"], condition=Q(shown=True, read_at=None), name="unread"),
        ]

    def __str__(self) -> str:
        return self.text


class MessageState(models.TextChoices):
    WAITING = "waiting"
    SENT = "sent"
    FAILED = "failed"  # given up, or it can never arrive; ``error`` says why
    DROPPED = "dropped"  # nobody wants it any more


class NotificationMessage(models.Model):
    """What leaves by one channel for one person: one notification, or a digest of many.

    Claimed by compare-and-swap (``claimed_until`` on this row), so that a courier that dies loses nothing.
    """

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    organisation = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")
    channel = models.CharField(max_length=10)
    digest = models.CharField(max_length=10, choices=Digest)
    state = models.CharField(max_length=10, choices=MessageState, default=MessageState.WAITING)
    due_at = models.DateTimeField()
    claimed_until = models.DateTimeField(null=True, blank=True)
    tries = models.PositiveSmallIntegerField(default=0)
    error = models.CharField(max_length=300, blank=True)
    reached = models.JSONField(default=list)  # push: devices that have it already
    created_at = models.DateTimeField(auto_now_add=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        db_table = "notifications_message"
        indexes = [
            models.Index(fields=["due_at"], condition=Q(state="waiting"), name="messages_due"),
            models.Index(fields=["user", "-id"], name="messages_of_user"),
        ]


class NotificationDelivery(models.Model):
    """One notification by one channel; ``message`` is what it left with, once it is due.

    What is due for one person by one channel leaves together; webhooks are an organisation's, so there
    ``organisation`` keeps them apart.
    """

    notification = models.ForeignKey(Notification, models.CASCADE, related_name="deliveries")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    organisation = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")
    channel = models.CharField(max_length=10)
    digest = models.CharField(max_length=10, choices=Digest)
    due_at = models.DateTimeField()
    message = models.ForeignKey(
        NotificationMessage, models.CASCADE, null=True, blank=True, related_name="deliveries"
    )

    class Meta:
        db_table = "notifications_delivery"
        constraints = [
            models.UniqueConstraint(fields=["notification", "channel"], name="one_delivery_per_channel")
        ]
        indexes = [models.Index(fields=["due_at"], condition=Q(message=None), name="deliveries_due")]


class PushDevice(models.Model):
    """A browser that takes Web Push, and the keys that only it can read with."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="push_devices")
    endpoint = models.CharField(max_length=1000)
    endpoint_sha256 = models.CharField(max_length=64, unique=True)
    p256dh = models.CharField(max_length=120)
    auth = models.CharField(max_length=40)
    name = models.CharField(max_length=200, blank=True)  # "Chrome on Android"
    created_at = models.DateTimeField(auto_now_add=True)
    last_sent_at = models.DateTimeField(null=True, blank=True)
    error = models.CharField(max_length=300, blank=True)  # of the last try

    def __str__(self) -> str:
        return self.name or self.endpoint[:40]


class Cursor(models.Model):
    """How far one source of events was read.

    ``position`` is a row's number; ``gaps`` are numbers below it that were not there yet (``[from, to,
    until]``): on PostgreSQL a lower number may be committed after a higher one. ``at`` is a time, for
    sources that are found by when something happened to them.
    """

    name = models.CharField(max_length=40, unique=True)
    position = models.BigIntegerField(default=0)
    gaps = models.JSONField(default=list)
    at = models.DateTimeField(null=True)


class AlertState(models.TextChoices):
    FIRING = "firing"
    ACKNOWLEDGED = "acknowledged"  # somebody sees to it
    RESOLVED = "resolved"


class Severity(models.TextChoices):
    """How bad it is, in the words that PagerDuty has."""

    CRITICAL = "critical"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


class Deed(models.TextChoices):
    """What happened to an alert."""

    FIRED = "fired"
    ACKNOWLEDGED = "acknowledged"
    MUTED = "muted"
    UNMUTED = "unmuted"
    RESOLVED = "resolved"


class Alert(models.Model):
    """One cause, from when it was first seen until it has been gone for a while.

    ``organisation``: whose it is; None: of who runs the service. ``ended_at``: the cause is over, so that it
    may fire anew. What was resolved by hand ends only once its cause is gone: until then it is not fired
    again. Muted is what nobody is told of until then, in whatever state.
    """

    rule = models.CharField(max_length=20, choices=[(one.value, one.label) for one in ALERTING])
    cause = models.CharField(max_length=120)  # "failing:3:tvm": names it within its rule
    organisation = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")
    severity = models.CharField(max_length=10, choices=Severity)
    state = models.CharField(max_length=12, choices=AlertState, default=AlertState.FIRING)
    text = models.CharField(max_length=160)
    path = models.CharField(max_length=300)  # where to look, from the service's root
    facts = models.JSONField(default=dict)
    told = models.BooleanField(default=False)  # whether anybody was told that it fired
    fired_at = models.DateTimeField()
    seen_at = models.DateTimeField()  # when its cause was last seen; written down once a minute
    gone_at = models.DateTimeField(null=True, blank=True)  # since when its cause is not seen
    acknowledged_by = models.CharField(max_length=150, blank=True)
    muted_until = models.DateTimeField(null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["rule", "cause"], condition=Q(ended_at=None), name="one_alert_per_cause"
            )
        ]
        indexes = [
            models.Index(fields=["rule", "cause", "-id"], name="alerts_of_cause"),
            models.Index(fields=["organisation", "-id"], name="alerts_of_organisation"),
        ]

    def __str__(self) -> str:
        return self.text

    def get_absolute_url(self) -> str:
        return reverse("alert", args=[self.pk])

    @property
    def is_muted(self) -> bool:
        return self.muted_at(timezone.now())

    def muted_at(self, now: datetime) -> bool:
        return self.muted_until is not None and self.muted_until > now

    @property
    def standing(self) -> str:
        """Its state in one word, as lists show it."""
        return "muted" if self.is_muted and self.state != AlertState.RESOLVED else self.state


class AlertDeed(models.Model):
    """What was done, by whom and when: an alert's history. ``told``: whether anybody was told of it."""

    alert = models.ForeignKey(Alert, models.CASCADE, related_name="deeds")
    what = models.CharField(max_length=12, choices=Deed)
    by = models.CharField(max_length=150, blank=True)  # empty: the service itself
    detail = models.CharField(max_length=300, blank=True)
    told = models.BooleanField(default=False)
    at = models.DateTimeField()

    class Meta:
        db_table = "notifications_alert_deed"
        indexes = [models.Index(fields=["alert", "-id"], name="deeds_of_alert")]
