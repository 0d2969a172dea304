"""Shapes of notifications and subscriptions; no logic."""

from __future__ import annotations

from rest_framework import serializers

from catalog.models import Method
from dashboard.notifications.channels.registry import CHANNELS
from dashboard.notifications.models import Digest, Happening, Notification, SubjectKind, Subscription
from dashboard.notifications.subscribing import HAPPENINGS

EVENTS = [one.value for one in HAPPENINGS]


class NotificationSerializer(serializers.ModelSerializer[Notification]):
    """One thing that was told. ``text`` is plain, of at most 160 characters; ``path`` is where to look."""

    event = serializers.ChoiceField(Happening.values, source="happening")
    subscription = serializers.IntegerField(source="subscription_id", allow_null=True)
    operator = serializers.CharField(source="operator.key", allow_null=True, default=None)

    class Meta:
        model = Notification
        fields = ("id", "event", "text", "path", "count", "at", "read_at", "subscription", "operator")
        read_only_fields = fields


class SubscriptionSerializer(serializers.ModelSerializer[Subscription]):
    """A subscription, as it stands."""

    operator = serializers.CharField(source="operator.key", allow_null=True, default=None)
    target = serializers.CharField(source="target.key", allow_null=True, default=None)
    setting = serializers.CharField(source="setting.key", allow_null=True, default=None)
    job = serializers.IntegerField(source="job_id", allow_null=True)
    model = serializers.IntegerField(source="model_id", allow_null=True)
    filters = serializers.DictField(child=serializers.CharField())
    events = serializers.ListField(child=serializers.ChoiceField(EVENTS), source="happenings")
    channels = serializers.ListField(child=serializers.ChoiceField(list(CHANNELS)), source="told_by")

    class Meta:
        model = Subscription
        fields = (
            "id", "subject", "title", "operator", "target", "setting", "job", "model", "filters", "events",
            "channels", "digest", "created_at",
        )  # fmt: skip
        read_only_fields = fields


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
    or anywhere), a job's or a model's number, or filters."""

    subject = serializers.ChoiceField(SubjectKind.values)
    operator = serializers.CharField(max_length=80, required=False)
    target = serializers.CharField(max_length=80, required=False)
    setting = serializers.CharField(max_length=80, required=False)
    job = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    model = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    filters = OperatorFilterSerializer(required=False)


class ReadSerializer(serializers.Serializer[object]):
    """How many were unread before."""

    read = serializers.IntegerField(min_value=0)
