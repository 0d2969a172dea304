"""What the apps beside the catalogue keep for an organisation: one marked row of each kind.

:func:`unplanted` names every table that hangs on an organisation and has no row of the first tenant: the
matrix fails on it, so that a new table cannot be forgotten.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db.models import ForeignKey, OneToOneField
from django.utils import timezone

from catalog import models as catalogue
from catalog.models import Organisation
from dashboard.billing import accounts
from dashboard.billing import models as billing
from dashboard.notifications import models as notifications
from dashboard.webhooks import endpoints
from dashboard.webhooks import models as webhooks
from opatlas.graph.structure import ModelStructure, StructureNode
from opatlas.graph.types import TensorType
from opatlas.streams.timeline import Timeline, TimelineBox
from tuning import planning, timelines
from tuning.models import WorkerShare
from tuning.uploads.models import Upload, UploadState

if TYPE_CHECKING:
    from tests.tenancy.world import World

MARK, COUNT = "zanzibar", 7_654_321  # as in tests.tenancy.world
APPS = (
    "catalog",
    "tuning",
    "kernels",
    "uploads",
    "billing",
    "webhooks",
    "notifications",
    "operation",
    "dashboard",
)


def plant(world: World) -> None:
    """Bills, subscriptions with what they told, webhooks with what they sent, what its jobs asked next."""
    _predictions(world)
    _plans(world)
    _uploads(world)
    _bills(world)
    _notifications(world)
    _webhooks(world)


def _predictions(world: World) -> None:
    organisation, operator = world.rows["organisation"], world.rows["operator"]
    other = catalogue.Operator.objects.exclude(pk=operator.pk).order_by("pk")[0]
    catalogue.Succession.objects.create(
        organisation=organisation, before=operator, after=other, jobs=COUNT, weight=1, last_at=timezone.now()
    )
    world.rows["network"] = catalogue.PredictorNetwork.objects.create(
        scope=f"org:{organisation.pk}", owner=organisation, version=1, sha256="5a" * 32, size_bytes=1,
        document={"said": MARK}, signature="00" * 64, signer="5a" * 32,
    )  # fmt: skip


def _plans(world: World) -> None:
    model = world.rows["model"]
    node = StructureNode(
        "Relu", f"/{MARK}/node", (0,), (1,), operator=world.rows["operator"].key, tensors=(0,)
    )
    floats = TensorType(1, (COUNT,))
    structure = ModelStructure("m1:" + "7a" * 32, (0,), (1,), (node,), (floats, floats))
    catalogue.StoredStructure.objects.create(model=model, packed=structure.packed())
    made = planning.make_plan(structure, model.target, model.setting, model.organisation)
    said = [replace(one, summary=f"{MARK} operator") for one in made.choices]
    made = replace(made, choices=said, predicted_us=float(COUNT))
    row, _ = planning.keep_plan(made, model.organisation, model.target, model.setting, model)
    planning.keep_measured(row, planning.MeasuredPlan(COUNT, COUNT, 1.0, 1.0, 1.0, True))
    timelines.keep_timeline(row, Timeline((f"{MARK} stream",), (TimelineBox(0, f"{MARK} box", 0.0, COUNT),)))
    world.rows["plan"] = row


def _uploads(world: World) -> None:
    organisation = world.rows["organisation"]
    world.rows["upload"] = Upload.objects.create(
        organisation=organisation, name=f"{MARK} upload", state=UploadState.REFUSED,
        reason=f"{MARK} broke it", size_bytes=COUNT,
    )  # fmt: skip
    WorkerShare.objects.create(organisation=organisation, spent_s=COUNT, at=timezone.now())


def _bills(world: World) -> None:
    organisation, made = world.rows["organisation"], world.rows["implementation"]
    now = timezone.now()
    world.rows["rule"] = billing.PriceRule.objects.create(
        name=f"{MARK} price", organisation=organisation, currency="EUR", from_at=now, created_by=MARK,
        note=f"{MARK} note", per_hit_micros=5, method="manual",
    )  # fmt: skip
    accounts.give_credit(organisation, COUNT, f"{MARK} credit", currency="EUR", by={"actor": MARK})
    billing.MonthCount.objects.create(
        organisation=organisation, line=world.rows["rule"].line, month=now.date().replace(day=1), hits=COUNT
    )
    seen = {"organisation": organisation, "implementation": made}
    billing.Purchase.objects.create(**seen, first_at=now)
    billing.Held.objects.create(**seen, day=now.date(), times=COUNT, last_at=now)
    world.rows["spending"] = billing.JobSpending.objects.create(
        organisation=organisation, job=f"{MARK} job", limit_micros=COUNT, spent_micros=COUNT, last_at=now
    )
    billing.UseAgreement.objects.create(
        **seen, job=f"{MARK} job", rule=world.rows["rule"], limit_micros=COUNT, calls=1.0, default_us=2.0,
        median_us=1.0, valid_until=now,
    )  # fmt: skip
    catalogue.KeptAnswer.objects.create(
        organisation=organisation, key=MARK, request_sha256="56" * 32, answer=[[], []], at=now
    )


def _notifications(world: World) -> None:
    organisation, owner = world.rows["organisation"], world.owner
    assert owner is not None
    user, now = owner.users["viewer"], timezone.now()
    common = {"user": user, "organisation": organisation}
    world.rows["subscription"] = subscription = notifications.Subscription.objects.create(
        **common, subject="job", job=world.rows["job"], subject_key=MARK, title=f"{MARK} subscription",
        filters={"q": MARK},
    )  # fmt: skip
    world.rows["notification"] = told = notifications.Notification.objects.create(
        **common, subscription=subscription, happening="hit", key=MARK, at=now, text=f"{MARK} told",
        path="/operators/", count=COUNT,
    )  # fmt: skip
    message = notifications.NotificationMessage.objects.create(
        **common, channel="email", digest="at_once", due_at=now, error=f"{MARK} error"
    )
    notifications.NotificationDelivery.objects.create(
        **common, notification=told, channel="email", digest="at_once", due_at=now, message=message
    )
    world.rows["alert"] = alert = notifications.Alert.objects.create(
        organisation=organisation, rule="regressed", cause=f"regressed:{MARK}", severity="warning",
        text=f"{MARK} slower", path="/operators/", facts={"said": MARK}, fired_at=now, seen_at=now,
    )  # fmt: skip
    notifications.AlertDeed.objects.create(alert=alert, what="fired", detail=f"{MARK} deed", at=now)
    world.rows["device"] = notifications.PushDevice.objects.create(
        user=user, endpoint=f"https://push.example/{MARK}", endpoint_sha256="34" * 32, p256dh="x", auth="y",
        name=f"{MARK} phone",
    )  # fmt: skip


def _webhooks(world: World) -> None:
    organisation = world.rows["organisation"]
    made = endpoints.create(organisation, f"https://{MARK}.example.org/hook", description=f"{MARK} hook")
    endpoint = world.rows["endpoint"] = made[0] if isinstance(made, tuple) else made
    message = webhooks.Message.objects.create(
        organisation=organisation, key=MARK, event_type="hit.served", data={"job": MARK}
    )
    delivery = webhooks.Delivery.objects.create(endpoint=endpoint, message=message, state="failed")
    webhooks.Attempt.objects.create(delivery=delivery, status=500, error=f"{MARK} error", excerpt=MARK)
    world.rows["delivery"] = delivery


def owned_tables() -> dict[Any, list[str]]:
    """Table → its columns that name an organisation."""
    found: dict[Any, list[str]] = {}
    for model in apps.get_models():
        if model._meta.app_label not in APPS or model is Organisation:
            continue
        names = [
            one.name
            for one in model._meta.get_fields()
            if isinstance(one, ForeignKey | OneToOneField) and one.related_model is Organisation
        ]
        if names:
            found[model] = names
    return found


def unplanted(organisation: Organisation) -> list[str]:
    return [
        model._meta.label
        for model, names in owned_tables().items()
        if not any(model._base_manager.filter(**{name: organisation}).exists() for name in names)
    ]
