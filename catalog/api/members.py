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
    """A person in the organisation. What is the person's own (address, logins) is not the organisation's."""

    username = serializers.CharField(source="user.username")
    active = serializers.BooleanField(source="user.is_active")

    class Meta:
        model = models.Membership
        fields = ["id", "username", "role", "active", "created_at"]


class NewMemberSerializer(serializers.Serializer[Any]):
    """Who is invited, as what; ``email`` is only noted."""

    email = serializers.EmailField(required=False)
    role = serializers.ChoiceField(models.Role.choices)

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if "username" in self.initial_data:
            sentence = "Nobody is added by name: leave username out, and pass the invitation on."
            raise serializers.ValidationError({"username": sentence})
        return attrs


class RoleSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(models.Role.choices)


class InvitedSerializer(serializers.Serializer[Any]):
    """The address below this service that opens the invitation once, for a week."""

    invitation = serializers.CharField()


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

    @operation(InvitedSerializer, name="add_member", status=201, tag="accounts", takes=NewMemberSerializer)
    def post(self, request: Request) -> dict[str, str]:
        """Invite somebody.

        Who has an account takes the invitation with that, others with a new one."""
        given, key = self.sent(NewMemberSerializer), self.key
        invitation, token = people.invite(
            key.organisation, given["role"], email=given.get("email", ""), by=key.user
        )
        subject, detail = invitation.email or "by link", {"role": invitation.role}
        audit.note(request, action="member.invite", subject=subject, detail=detail)
        return {"invitation": f"/invited/{token}/"}


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
