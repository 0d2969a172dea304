"""Notifications over REST, for keys that belong to a user: what that person is told within the key's
organisation, and what they watch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.urls import path
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.describing import query
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer, shape
from catalog.errors import RequestError
from catalog.models import Method
from catalog.viewing import Viewer
from dashboard.notifications import selectors, subscribing
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.models import (
    EVERY,
    Digest,
    Happening,
    Notification,
    SubjectKind,
    Subscription,
)
from dashboard.notifications.selectors import InboxFilters
from dashboard.notifications.subscribing import begun
from dashboard.notifications.write import subjects
from tuning.api import filters

EVENTS = [one.value for one in EVERY]


class NotificationAnswer(ModelAnswer):
    """One thing that was told. ``text`` is plain, of at most 160 characters; ``path`` is where to look."""

    event = serializers.ChoiceField(Happening.values, source="happening")
    operator = serializers.CharField(source="operator.key", allow_null=True, default=None)

    class Meta:
        model = Notification
        fields = ["id", "event", "text", "path", "count", "at", "read_at", "subscription", "operator"]


class SubscriptionAnswer(ModelAnswer):
    """A subscription, as it stands."""

    operator = serializers.CharField(source="operator.key", allow_null=True, default=None)
    target = serializers.CharField(source="target.key", allow_null=True, default=None)
    setting = serializers.CharField(source="setting.key", allow_null=True, default=None)
    filters = serializers.DictField(child=serializers.CharField())
    events = serializers.ListField(child=serializers.ChoiceField(EVENTS), source="happenings")
    channels = serializers.ListField(child=serializers.ChoiceField(list(CHANNELS)), source="told_by")

    class Meta:
        model = Subscription
        fields = [
            "id", "subject", "title", "operator", "target", "setting", "job", "model", "filters", "events",
            "channels", "digest", "created_at",
        ]  # fmt: skip


class WishSerializer(serializers.Serializer[object]):
    """What to be told of, how, and how often; what is left out stays, or begins as the page's form does."""

    events = serializers.ListField(
        child=serializers.ChoiceField(EVENTS), min_length=1, max_length=len(EVENTS), required=False
    )
    channels = serializers.ListField(
        child=serializers.ChoiceField(list(CHANNELS)),
        min_length=1,
        max_length=len(CHANNELS),
        required=False,
    )
    digest = serializers.ChoiceField(Digest.choices, required=False)


class OperatorFilterSerializer(serializers.Serializer[object]):
    """The operators' list's filters; an empty one is every operator."""

    q = serializers.CharField(max_length=200, required=False, allow_blank=True)
    op_type = serializers.CharField(max_length=100, required=False, allow_blank=True)
    dtype = serializers.CharField(max_length=20, required=False, allow_blank=True)
    method = serializers.ChoiceField(Method.choices, required=False)
    target = serializers.CharField(max_length=80, required=False, allow_blank=True)


class SubscribeSerializer(WishSerializer):
    """What to watch: ``subject``, and what names it: an operator's key (with a target's and a setting's,
    or anywhere), a job's or a model's number, or filters; the service and an account have no name."""

    subject = serializers.ChoiceField(SubjectKind.values)
    operator = serializers.CharField(max_length=80, required=False)
    target = serializers.CharField(max_length=80, required=False)
    setting = serializers.CharField(max_length=80, required=False)
    job = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    model = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    filters = OperatorFilterSerializer(required=False)


@dataclass(frozen=True)
class ReadNotifications:
    """How many were unread before."""

    read: int


class _Personal(RestView):
    """Base: whose key it is, and what that person is told and watches within the key's organisation."""

    def user(self) -> User:
        return self.person("people are told, not machines.")

    def mine(self) -> QuerySet[Notification]:
        return selectors.visible(self.user(), self.viewer, within=self.viewer.focus)

    def watched(self) -> QuerySet[Subscription]:
        """Of the key's organisation; a key that runs the service sees all of its person's."""
        rows = selectors.subscriptions(self.user()).select_related("operator", "target", "setting")
        return rows if self.viewer.focus is None else rows.filter(organisation=self.viewer.focus)


@listing(
    NotificationAnswer,
    name="notifications",
    parameters=[
        query("show", "unread: only what was not read yet.", enum=["unread"]),
        query("event", "Only of this kind.", enum=Happening.values),
    ],
)
class NotificationsView(_Personal, Listing[Notification]):
    """What the key's person was told, unread first."""

    def get_queryset(self) -> QuerySet[Notification]:
        user = self.user()
        show = (filters.choices(self.request, "show", ["unread"]) or [""])[0]
        event = (filters.choices(self.request, "event", Happening.values) or [""])[0]
        rows = selectors.inbox(user, self.viewer, InboxFilters(show, event), within=self.viewer.focus)
        return rows.select_related("operator")


class ReadNotificationView(_Personal):
    @operation(NotificationAnswer, name="read_notification")
    def post(self, request: Request, pk: int) -> Notification:
        """Mark one as read; twice changes nothing."""
        row = one(self.mine().select_related("operator"), pk, f"You have no notification {pk}.")
        if self.mine().filter(pk=pk, read_at=None).update(read_at=timezone.now()):
            row.refresh_from_db(fields=["read_at"])
        return row


class ReadNotificationsView(_Personal):
    @operation(shape(ReadNotifications), name="read_notifications")
    def post(self, request: Request) -> ReadNotifications:
        """Mark all as read."""
        return ReadNotifications(self.mine().filter(read_at=None).update(read_at=timezone.now()))


@listing(SubscriptionAnswer, name="subscriptions", tag="notifications")
class SubscriptionsView(_Personal, Listing[Subscription]):
    """What the key's person watches, the latest first."""

    def get_queryset(self) -> QuerySet[Subscription]:
        return self.watched()

    @operation(
        SubscriptionAnswer,
        name="subscribe",
        tag="notifications",
        takes=SubscribeSerializer,
        responses={201: SubscriptionAnswer},
    )
    def post(self, request: Request) -> Response:
        """Watch something; what is watched already is changed (200 instead of 201)."""
        user = self.user()
        given = self.sent(SubscribeSerializer)
        about = _about(given, self.viewer)
        wanted = _wish(given, begun(about.subject), user)
        row, new = subscribing.subscribe(user, self.viewer, about, wanted)
        return Response(SubscriptionAnswer(row).data, status=201 if new else 200)


class SubscriptionView(_Personal):
    def row(self, pk: int) -> Subscription:
        return one(self.watched(), pk, f"You have no subscription {pk}.")

    @operation(SubscriptionAnswer, name="subscription", tag="notifications")
    def get(self, request: Request, pk: int) -> Subscription:
        """One subscription."""
        return self.row(pk)

    @operation(SubscriptionAnswer, name="change_subscription", tag="notifications", takes=WishSerializer)
    def patch(self, request: Request, pk: int) -> Subscription:
        """Change what is told, how and how often; what is left out stays."""
        row = self.row(pk)
        return subscribing.change(row, _wish(self.sent(WishSerializer), row, self.user()))

    @operation(name="end_subscription", status=204, tag="notifications")
    def delete(self, request: Request, pk: int) -> None:
        """Watch it no longer."""
        subscribing.end(self.row(pk))


def _about(given: Mapping[str, Any], viewer: Viewer) -> subjects.NamedSubject:
    subject = given["subject"]
    if subject == SubjectKind.FILTER:
        return subjects.operators_that(given.get("filters") or {})
    if subject == SubjectKind.SERVICE:
        return subjects.service(viewer)
    if subject == SubjectKind.ACCOUNT:
        return subjects.account(viewer)
    if subject not in given:
        raise RequestError(f"Say which {subject}: {subject} is missing.", where=subject)
    if subject == SubjectKind.JOB:
        return subjects.job(viewer, given["job"])
    if subject == SubjectKind.MODEL:
        return subjects.model(viewer, given["model"])
    return subjects.operator(given["operator"], given.get("target", ""), given.get("setting", ""))


def _wish(given: Mapping[str, Any], now: Subscription, user: User) -> subscribing.Wish:
    return subscribing.wish(
        now.subject,
        given.get("events") or [one.value for one in now.happenings],
        given.get("channels") or now.told_by,
        given.get("digest") or now.digest,
        user,
    )


urlpatterns = [
    path("notifications/", NotificationsView.as_view(), name="api-notifications"),
    path("notifications/read", ReadNotificationsView.as_view(), name="api-notifications-read"),
    path("notifications/<row_id:pk>/read", ReadNotificationView.as_view(), name="api-notification-read"),
    path("subscriptions/", SubscriptionsView.as_view(), name="api-subscriptions"),
    path("subscriptions/<row_id:pk>", SubscriptionView.as_view(), name="api-subscription"),
]
