"""Keys, members and the audit log of the key's organisation; each takes the scope ``admin``."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.generics import ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import models
from catalog.api.authentication import key_of
from catalog.api.describing import errors, query
from catalog.errors import RequestError, Unknown
from catalog.people import audit, audited
from catalog.people import members as people
from catalog.people.keys import SCOPES, create_api_key, revoke_api_key
from catalog.timerange import RANGES, parse_range
from catalog.viewing import viewer_of_key

MAX_ID = 2**63 - 1


class KeySerializer(serializers.ModelSerializer[models.ApiKey]):
    """A key without its secret."""

    user = serializers.CharField(source="user.username", default="", read_only=True)

    class Meta:
        model = models.ApiKey
        fields = [
            "id", "prefix", "name", "scopes", "user", "created_at", "last_used_at", "revoked_at",
        ]  # fmt: skip
        read_only_fields = fields


class NewKeySerializer(serializers.Serializer[Any]):
    """A key to be made."""

    name = serializers.CharField(max_length=200)
    scopes = serializers.ListField(child=serializers.ChoiceField(SCOPES), min_length=1)
    personal = serializers.BooleanField(
        default=False, help_text="The same person answers for it as for the key that asks."
    )


class MadeKeySerializer(KeySerializer):
    """A new key; ``key`` is its text, which cannot be had a second time."""

    key = serializers.CharField(read_only=True)

    class Meta(KeySerializer.Meta):
        fields = [*KeySerializer.Meta.fields, "key"]
        read_only_fields = fields


class MemberSerializer(serializers.ModelSerializer[models.Membership]):
    """A person in the organisation."""

    username = serializers.CharField(source="user.username", read_only=True)
    email = serializers.CharField(source="user.email", read_only=True)
    active = serializers.BooleanField(source="user.is_active", read_only=True)
    last_login = serializers.DateTimeField(source="user.last_login", read_only=True, allow_null=True)

    class Meta:
        model = models.Membership
        fields = ["id", "username", "email", "role", "active", "last_login", "created_at"]
        read_only_fields = fields


class NewMemberSerializer(serializers.Serializer[Any]):
    """Somebody with an account (``username``), or an invitation (``email``, or neither: a link)."""

    username = serializers.CharField(max_length=150, required=False)
    email = serializers.EmailField(required=False)
    role = serializers.ChoiceField(models.Role.choices)


class RoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(models.Role.choices)


class AddedSerializer(serializers.Serializer[Any]):
    """Either the member, or the address below this service that opens the invitation once, for a week."""

    member = MemberSerializer(allow_null=True)
    invitation = serializers.CharField(allow_null=True)


class AuditSerializer(serializers.ModelSerializer[models.AuditEntry]):
    """Something that was done."""

    organisation = serializers.CharField(source="organisation.name", default="", read_only=True)

    class Meta:
        model = models.AuditEntry
        fields = [
            "id", "at", "actor", "action", "subject", "organisation", "detail", "request_id", "address",
        ]  # fmt: skip
        read_only_fields = fields


class Keys(ListAPIView[models.ApiKey]):
    """The organisation's keys."""

    required_scope = "admin"
    serializer_class = KeySerializer
    queryset = models.ApiKey.objects.none()

    def get_queryset(self) -> QuerySet[models.ApiKey]:
        rows = models.ApiKey.objects.filter(organisation=key_of(self.request).organisation)
        return rows.select_related("user").order_by("-pk")

    @extend_schema(
        operation_id="keys", tags=["accounts"], summary="API keys, the newest first",
        responses={200: KeySerializer(many=True), **errors(400)},
    )  # fmt: skip
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="create_key", tags=["accounts"], summary="Make an API key; its text is answered once",
        request=NewKeySerializer, responses={201: MadeKeySerializer, **errors(400)},
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        given, asking = _checked(NewKeySerializer, request), key_of(request)
        user = asking.user if given["personal"] else None
        if given["personal"] and user is None:
            raise RequestError(
                "This key is nobody's: a personal one is made on the page of keys.", "personal"
            )
        key, text = create_api_key(asking.organisation, given["name"], given["scopes"], user=user)
        audit.note(request, action="key.create", subject=str(key), detail={"scopes": key.scopes})
        key.key = text  # type: ignore[attr-defined]
        return Response(MadeKeySerializer(key).data, status=201)


class RevokeKey(APIView):
    required_scope = "admin"

    @extend_schema(
        operation_id="revoke_key", tags=["accounts"], summary="Close a key at once",
        request=None, responses={200: KeySerializer, **errors(404)},
    )  # fmt: skip
    def post(self, request: Request, number: int) -> Response:
        rows = models.ApiKey.objects.filter(organisation=key_of(request).organisation)
        key = rows.filter(pk=number).first() if number <= MAX_ID else None
        if key is None:
            raise Unknown(f"Your organisation has no key {number}.")
        key = revoke_api_key(key.prefix)
        audit.note(request, action="key.revoke", subject=str(key))
        return Response(KeySerializer(key).data)


class Members(ListAPIView[models.Membership]):
    """Who belongs to the organisation."""

    required_scope = "admin"
    serializer_class = MemberSerializer
    queryset = models.Membership.objects.none()

    def get_queryset(self) -> QuerySet[models.Membership]:
        return _members(self.request).order_by("user__username")

    @extend_schema(
        operation_id="members", tags=["accounts"], summary="Members with their roles",
        responses={200: MemberSerializer(many=True), **errors(400)},
    )  # fmt: skip
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    @extend_schema(
        operation_id="add_member", tags=["accounts"], summary="Add somebody with an account, or invite",
        request=NewMemberSerializer, responses={201: AddedSerializer, **errors(400, 404, 409)},
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        given, key = _checked(NewMemberSerializer, request), key_of(request)
        if name := given.get("username"):
            row = people.add_member(key.organisation, name, given["role"])
            audit.note(request, action="member.add", subject=str(row.user), detail={"role": row.role})
            return Response(AddedSerializer({"member": row, "invitation": None}).data, status=201)
        invitation, token = people.invite(
            key.organisation, given["role"], email=given.get("email", ""), by=key.user
        )
        audit.note(request, action="member.invite", subject=invitation.email or "by link",
                   detail={"role": invitation.role})  # fmt: skip
        return Response(
            AddedSerializer({"member": None, "invitation": f"/invited/{token}/"}).data, status=201
        )


class Member(APIView):
    required_scope = "admin"

    @extend_schema(
        operation_id="change_member", tags=["accounts"], summary="Give a member another role",
        request=RoleSerializer, responses={200: MemberSerializer, **errors(400, 404, 409)},
    )  # fmt: skip
    def patch(self, request: Request, number: int) -> Response:
        row = _member(request, number)
        before = row.role
        people.change_role(row, _checked(RoleSerializer, request)["role"])
        audit.note(request, action="member.role", subject=str(row.user),
                   detail={"before": before, "after": row.role})  # fmt: skip
        return Response(MemberSerializer(row).data)

    @extend_schema(
        operation_id="remove_member", tags=["accounts"], summary="Take a member out",
        responses={204: None, **errors(404, 409)},
    )  # fmt: skip
    def delete(self, request: Request, number: int) -> Response:
        row = _member(request, number)
        people.remove_member(row)
        audit.note(request, action="member.remove", subject=str(row.user), detail={"role": row.role})
        return Response(status=204)


class AuditLogView(ListAPIView[models.AuditEntry]):
    """Who did what."""

    required_scope = "admin"
    serializer_class = AuditSerializer
    queryset = models.AuditEntry.objects.none()

    @extend_schema(
        operation_id="audit", tags=["accounts"], summary="The audit log, the latest first",
        parameters=[
            query("actor", "Only whose name contains this.", maxLength=100),
            query("action", "Only where what was done, or to what, contains this.", maxLength=100),
            OpenApiParameter("range", str, enum=list(RANGES), description="How far back; 7d."),
            query("since", "From here on, ISO 8601."),
            query("until", "Before this, ISO 8601."),
        ],
        responses={200: AuditSerializer(many=True), **errors(400)},
    )  # fmt: skip
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[models.AuditEntry]:
        given = self.request.query_params
        texts = {name: given.get(name, "") for name in ("actor", "action")}
        for name, text in texts.items():
            if len(text) > 100 or "\0" in text:
                raise RequestError(f"{name} is at most 100 characters, without NUL.", where=name)
        rows = audited.entries(viewer_of_key(key_of(self.request)))
        return audited.narrowed(rows, **texts, during=parse_range(given))


def _members(request: Request) -> QuerySet[models.Membership]:
    rows = models.Membership.objects.filter(organisation=key_of(request).organisation)
    return rows.select_related("user", "organisation")


def _member(request: Request, number: int) -> models.Membership:
    row = _members(request).filter(pk=number).first() if number <= MAX_ID else None
    if row is None:
        raise Unknown(f"Your organisation has no member {number}.")
    return row


def _checked(shape: type[Any], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return dict(serializer.validated_data)
