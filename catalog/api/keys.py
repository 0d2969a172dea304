"""API keys of the key's organisation."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request

from catalog import models
from catalog.api.authentication import Needs
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.shapes import ModelAnswer
from catalog.errors import RequestError
from catalog.people import audit
from catalog.people.addresses import MOST_NETWORKS
from catalog.people.keys import SCOPES, facts_of, make_key_by, open_keys_made_with, revoke_api_key


class KeyAnswer(ModelAnswer):
    """A key without its secret."""

    user = serializers.CharField(source="user.username", default="", read_only=True)
    made_by_key = serializers.CharField(
        source="made_by_key.prefix",
        default="",
        read_only=True,
        help_text="Prefix of the key that it was made with; empty: made by a person, or at the shell.",
    )
    addresses = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        read_only=True,
        help_text="The networks that it is used from; null: from anywhere.",
    )

    class Meta:
        model = models.ApiKey
        fields = [
            "id", "prefix", "name", "scopes", "user", "made_by_key", "created_at", "last_used_at",
            "revoked_at", "expires_at", "addresses",
        ]  # fmt: skip


class MadeKeyAnswer(KeyAnswer):
    """A new key; ``key`` is its text, which cannot be had a second time."""

    key = serializers.CharField()

    class Meta(KeyAnswer.Meta):
        fields = [*KeyAnswer.Meta.fields, "key"]


class ClosedKeyAnswer(KeyAnswer):
    """A key that was closed."""

    still_open = serializers.ListField(
        child=serializers.CharField(),
        help_text="Prefixes of keys that were made with it, or with those, and stay open: close those, too, "
        "that whoever should not have it may have made.",
    )

    class Meta(KeyAnswer.Meta):
        fields = [*KeyAnswer.Meta.fields, "still_open"]


class NewKeySerializer(serializers.Serializer[Any]):
    """A key to be made."""

    name = serializers.CharField(max_length=200)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), min_length=1)
    personal = serializers.BooleanField(
        default=False, help_text="The same person answers for it as for the key that asks."
    )
    expires_at = serializers.DateTimeField(
        default=None, allow_null=True, help_text="Its end; left out: never."
    )
    addresses = serializers.ListField(
        child=serializers.CharField(max_length=60),
        default=list,
        max_length=MOST_NETWORKS,
        help_text="Networks that it is used from, as `192.0.2.0/24`; none: from anywhere.",
    )


@listing(KeyAnswer, name="keys", tag="accounts")
class KeysView(Listing[models.ApiKey]):
    """API keys, the newest first."""

    needs = Needs("admin")

    def get_queryset(self) -> QuerySet[models.ApiKey]:
        rows = models.ApiKey.objects.filter(organisation=self.key.organisation)
        return rows.select_related("user", "made_by_key").order_by("-pk")

    @operation(MadeKeyAnswer, name="create_key", status=201, tag="accounts", takes=NewKeySerializer)
    def post(self, request: Request) -> models.ApiKey:
        """Make an API key; its text is answered once.

        It ends no later than the key that asks, and is used from no other networks."""
        given, asking = self.sent(NewKeySerializer), self.key
        if given["personal"] and asking.user is None:
            raise RequestError(
                "This key is nobody's: a personal one is made on the page of keys.", "personal"
            )
        key, text = make_key_by(
            asking,
            given["name"],
            given["scopes"],
            personal=given["personal"],
            expires_at=given["expires_at"],
            addresses=given["addresses"],
        )
        audit.note(request, action="key.create", subject=str(key), detail=facts_of(key))
        key.key = text  # type: ignore[attr-defined]
        return key


class RevokeKeyView(RestView):
    needs = Needs("admin")

    @operation(ClosedKeyAnswer, name="revoke_key", tag="accounts")
    def post(self, request: Request, number: int) -> models.ApiKey:
        """Close a key at once."""
        rows = models.ApiKey.objects.filter(organisation=self.key.organisation)
        key = one(rows, number, f"Your organisation has no key {number}.")
        key = revoke_api_key(key.prefix)
        audit.note(request, action="key.revoke", subject=str(key))
        key.still_open = [one.prefix for one in open_keys_made_with(key)]  # type: ignore[attr-defined]
        return key


urlpatterns = [
    path("keys/", KeysView.as_view(), name="key-list"),
    path("keys/<row_id:number>/revoke", RevokeKeyView.as_view(), name="revoke-key"),
]
