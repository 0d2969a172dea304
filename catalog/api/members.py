"""Who belongs to the key's organisation, and as what."""

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
from catalog.people import audit
from catalog.people import members as people


class MemberAnswer(ModelAnswer):
    """A person in the organisation."""

    username = serializers.CharField(source="user.username")
    email = serializers.CharField(source="user.email")
    active = serializers.BooleanField(source="user.is_active")
    last_login = serializers.DateTimeField(source="user.last_login", allow_null=True)

    class Meta:
        model = models.Membership
        fields = ["id", "username", "email", "role", "active", "last_login", "created_at"]


class NewMemberSerializer(serializers.Serializer[Any]):
    """Somebody with an account (``username``), or an invitation (``email``, or neither: a link)."""

    username = serializers.CharField(max_length=150, required=False)
    email = serializers.EmailField(required=False)
    role = serializers.ChoiceField(models.Role.choices)


class RoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(models.Role.choices)


class AddedSerializer(serializers.Serializer[Any]):
    """Either the member, or the address below this service that opens the invitation once, for a week."""

    member = MemberAnswer(allow_null=True)
    invitation = serializers.CharField(allow_null=True)


class _Members(RestView):
    needs = Needs("admin")

    def rows(self) -> QuerySet[models.Membership]:
        rows = models.Membership.objects.filter(organisation=self.key.organisation)
        return rows.select_related("user", "organisation")


@listing(MemberAnswer, name="members", tag="accounts")
class MembersView(_Members, Listing[models.Membership]):
    """Members with their roles."""

    def get_queryset(self) -> QuerySet[models.Membership]:
        return self.rows().order_by("user__username")

    @operation(AddedSerializer, name="add_member", status=201, tag="accounts", takes=NewMemberSerializer)
    def post(self, request: Request) -> dict[str, Any]:
        """Add somebody with an account, or invite."""
        given, key = self.sent(NewMemberSerializer), self.key
        if name := given.get("username"):
            row = people.add_member(key.organisation, name, given["role"])
            audit.note(request, action="member.add", subject=str(row.user), detail={"role": row.role})
            return {"member": row, "invitation": None}
        invitation, token = people.invite(
            key.organisation, given["role"], email=given.get("email", ""), by=key.user
        )
        subject, detail = invitation.email or "by link", {"role": invitation.role}
        audit.note(request, action="member.invite", subject=subject, detail=detail)
        return {"member": None, "invitation": f"/invited/{token}/"}


class MemberView(_Members):
    @operation(MemberAnswer, name="change_member", tag="accounts", takes=RoleSerializer)
    def patch(self, request: Request, number: int) -> models.Membership:
        """Give a member another role."""
        row = self.row(number)
        before = row.role
        people.change_role(row, self.sent(RoleSerializer)["role"])
        detail = {"before": before, "after": row.role}
        audit.note(request, action="member.role", subject=str(row.user), detail=detail)
        return row

    @operation(name="remove_member", status=204, tag="accounts", fails=[404, 409])
    def delete(self, request: Request, number: int) -> None:
        """Take a member out."""
        row = self.row(number)
        people.remove_member(row)
        audit.note(request, action="member.remove", subject=str(row.user), detail={"role": row.role})

    def row(self, number: int) -> models.Membership:
        return one(self.rows(), number, f"Your organisation has no member {number}.")


urlpatterns = [
    path("members/", MembersView.as_view(), name="member-list"),
    path("members/<row_id:number>", MemberView.as_view(), name="member"),
]
