"""Notifications over REST, for keys that belong to a user: what that person is told within the key's
organisation. Views validate, then call a service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import generics, serializers
from rest_framework.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors, query
from catalog.errors import RequestError, Unknown
from catalog.viewing import Viewer, viewer_of_key
from dashboard.notifications import selectors, subscribing
from dashboard.notifications.api.serializers import (
    NotificationSerializer,
    ReadSerializer,
    SubscribeSerializer,
    SubscriptionSerializer,
    WishSerializer,
)
from dashboard.notifications.models import Happening, Notification, SubjectKind, Subscription
from dashboard.notifications.selectors import InboxFilters
from dashboard.notifications.write import subjects
from tuning.api import filters

_WRITE = (400, 404, 413, 415)
_TAGS = ["notifications"]


class Notifications(generics.ListAPIView[Notification]):
    """What this person was told."""

    required_scope = "lookup"
    serializer_class = NotificationSerializer
    queryset = Notification.objects.none()

    @extend_schema(
        operation_id="notifications",
        tags=_TAGS,
        summary="What the key's person was told, unread first",
        parameters=[
            query("show", "unread: only what was not read yet.", enum=["unread"]),
            query("event", "Only of this kind.", enum=Happening.values),
        ],
        responses={200: NotificationSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Notification]:
        user, viewer = person(self.request)
        show = (filters.choices(self.request, "show", ["unread"]) or [""])[0]
        event = (filters.choices(self.request, "event", Happening.values) or [""])[0]
        return selectors.inbox(user, viewer, InboxFilters(show, event), within=viewer.focus).select_related(
            "operator"
        )


class ReadNotification(APIView):
    @extend_schema(
        operation_id="read_notification",
        tags=_TAGS,
        summary="Mark one as read; twice changes nothing",
        request=None,
        responses={200: NotificationSerializer, **errors(404)},
    )
    def post(self, request: Request, pk: int) -> Response:
        rows = _mine(request).filter(pk=pk)
        rows.filter(read_at=None).update(read_at=timezone.now())
        row = rows.select_related("operator").first()
        if row is None:
            raise Unknown(f"You have no notification {pk}.")
        return Response(NotificationSerializer(row).data)


class ReadAll(APIView):
    @extend_schema(
        operation_id="read_notifications",
        tags=_TAGS,
        summary="Mark all as read",
        request=None,
        responses={200: ReadSerializer, **errors()},
    )
    def post(self, request: Request) -> Response:
        return Response({"read": _mine(request).filter(read_at=None).update(read_at=timezone.now())})


class Subscriptions(generics.ListAPIView[Subscription]):
    """What this person watches."""

    required_scope = "lookup"
    serializer_class = SubscriptionSerializer
    queryset = Subscription.objects.none()

    @extend_schema(
        operation_id="subscriptions",
        tags=_TAGS,
        summary="What the key's person watches, the latest first",
        responses={200: SubscriptionSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Subscription]:
        return _subscriptions(self.request)

    @extend_schema(
        operation_id="subscribe",
        tags=_TAGS,
        summary="Watch something; what is watched already is changed (200 instead of 201)",
        request=SubscribeSerializer,
        responses={201: SubscriptionSerializer, 200: SubscriptionSerializer, **errors(*_WRITE)},
    )
    def post(self, request: Request) -> Response:
        user, viewer = person(request)
        given = _checked(SubscribeSerializer, request)
        wanted = _wish(given, Subscription(), user)
        row, new = subscribing.subscribe(user, viewer, _about(given, viewer), wanted)
        return Response(SubscriptionSerializer(row).data, status=201 if new else 200)


class SubscriptionDetail(APIView):
    @extend_schema(
        operation_id="subscription",
        tags=_TAGS,
        summary="One subscription",
        responses={200: SubscriptionSerializer, **errors(404)},
    )
    def get(self, request: Request, pk: int) -> Response:
        return Response(SubscriptionSerializer(_subscription(request, pk)).data)

    @extend_schema(
        operation_id="change_subscription",
        tags=_TAGS,
        summary="Change what is told, how and how often; what is left out stays",
        request=WishSerializer,
        responses={200: SubscriptionSerializer, **errors(*_WRITE)},
    )
    def patch(self, request: Request, pk: int) -> Response:
        row = _subscription(request, pk)
        wanted = _wish(_checked(WishSerializer, request), row, person(request)[0])
        return Response(SubscriptionSerializer(subscribing.change(row, wanted)).data)

    @extend_schema(
        operation_id="end_subscription",
        tags=_TAGS,
        summary="Watch it no longer",
        responses={204: None, **errors(404)},
    )
    def delete(self, request: Request, pk: int) -> Response:
        subscribing.end(_subscription(request, pk))
        return Response(status=204)


def person(request: Request) -> tuple[User, Viewer]:
    """Whose key this is, and what it may see; 403 for a key that is nobody's."""
    key = key_of(request)
    if key.user is None:
        raise PermissionDenied("This needs a key that belongs to a user: people are told, not machines.")
    if not key.user.is_active:
        raise PermissionDenied("The user whose key this is was switched off.")
    return key.user, viewer_of_key(key)


def _mine(request: Request) -> QuerySet[Notification]:
    user, viewer = person(request)
    return selectors.visible(user, viewer, within=viewer.focus)


def _subscriptions(request: Request) -> QuerySet[Subscription]:
    """Of the key's organisation; a key that runs the service sees all of its person's."""
    user, viewer = person(request)
    rows = selectors.subscriptions(user).select_related("operator", "target", "setting")
    return rows if viewer.focus is None else rows.filter(organisation=viewer.focus)


def _subscription(request: Request, pk: int) -> Subscription:
    row = _subscriptions(request).filter(pk=pk).first()
    if row is None:
        raise Unknown(f"You have no subscription {pk}.")
    return row


def _about(given: Mapping[str, Any], viewer: Viewer) -> subjects.NamedSubject:
    subject = given["subject"]
    if subject == SubjectKind.FILTER:
        return subjects.operators_that(given.get("filters") or {})
    if subject not in given:
        raise RequestError(f"Say which {subject}: {subject} is missing.", where=subject)
    if subject == SubjectKind.JOB:
        return subjects.job(viewer, given["job"])
    if subject == SubjectKind.MODEL:
        return subjects.model(viewer, given["model"])
    return subjects.operator(given["operator"], given.get("target", ""), given.get("setting", ""))


def _wish(given: Mapping[str, Any], now: Subscription, user: User) -> subscribing.Wish:
    return subscribing.wish(
        given.get("events") or [one.value for one in now.happenings],
        given.get("channels") or now.told_by,
        given.get("digest") or now.digest,
        user,
    )


def _checked(kind: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
