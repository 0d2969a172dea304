"""Django's administration of what has no page of its own, and a plain look at every table.

Evidence is read-only here: implementations, measurements and bests are made by workers alone, and keys by
``catalog.people.keys.create_api_key`` alone, since only that shows the secret.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from catalog import models as catalog
from catalog.viewing import viewer_of
from tuning import models as tuning
from tuning.kernels import models as kernels

admin.site.site_header = "Opatlas administration"
admin.site.site_title = "Opatlas"
admin.site.index_title = "Tables"


class HostsOwn(admin.AdminSite):
    """For staff of the host organisation: every tenant's rows are here."""

    def has_permission(self, request: HttpRequest) -> bool:
        return super().has_permission(request) and viewer_of(request.user).sees_all


admin.site.__class__ = HostsOwn  # other apps have registered with this very object


class Looked(admin.ModelAdmin):
    """A table that is looked at, never edited: counts are left out, since tables grow to millions."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class MembershipInline(admin.TabularInline):
    """Members with their roles; the page of people also ends sessions and keeps an admin everywhere."""

    model = catalog.Membership
    extra = 0
    autocomplete_fields = ("user", "organisation")


@admin.register(catalog.Organisation)
class OrganisationAdmin(admin.ModelAdmin):
    list_display = ("name", "host", "created_at")
    search_fields = ("name",)
    inlines = (MembershipInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # usage, bills and the audit log are evidence


admin.site.unregister(User)


@admin.register(User)
class PersonAdmin(UserAdmin):
    inlines = (MembershipInline,)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # what somebody decided stays somebody's: switch the account off instead


@admin.register(catalog.ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):
    list_display = ("prefix", "name", "organisation", "scopes", "last_used_at", "revoked_at")
    list_filter = ("organisation", ("revoked_at", admin.EmptyFieldListFilter))
    list_select_related = ("organisation",)
    search_fields = ("name", "prefix")
    readonly_fields = ("prefix", "created_at", "last_used_at", "revoked_at")
    exclude = ("secret_sha256",)
    actions = ("revoke",)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    @admin.action(description="Revoke the chosen keys")
    def revoke(self, request: HttpRequest, keys: QuerySet[catalog.ApiKey]) -> None:
        revoked = keys.filter(revoked_at=None).update(revoked_at=timezone.now())
        self.message_user(request, f"{revoked} keys were revoked; who shows them is refused from now on.")


@admin.register(catalog.Model)
class ModelAdmin(Looked):
    list_display = ("name", "organisation", "form", "calls", "target", "created_at")
    list_select_related = ("organisation", "target")
    search_fields = ("name", "sha256")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(tuning.Pause)
class PauseAdmin(admin.ModelAdmin):
    list_display = ("capability", "reason", "created_at")


_OPERATOR = ("operator__key", "operator__summary")


def _look(model: type[Model], *columns: str, also: Sequence[str] = (), **options: Any) -> None:
    """A table to be looked at: its columns, ``also`` the rows that they name, further options of Django's."""
    admin.site.register(model, Looked, list_display=columns, list_select_related=also, **options)


_look(
    catalog.Invitation, "organisation", "role", "email", "invited_by", "created_at", "expires_at",
    "accepted_by", "withdrawn_at", also=("organisation", "invited_by", "accepted_by"), exclude=("nonce",),
)  # fmt: skip
_look(catalog.SignIn, "user", "began_at", "address", "agent", also=("user",), exclude=("session_key",))
_look(
    catalog.AuditEntry, "at", "actor", "action", "subject", "organisation", "address", "request_id",
    also=("organisation",), list_filter=("organisation",), date_hierarchy="at",
    search_fields=("actor", "action", "subject", "request_id"),
)  # fmt: skip
_look(catalog.Rollup, "name", "made_at", "took_s")
_look(
    catalog.TrafficSlot, "tenant", "grain", "start", "hits", "misses", "operators_asked", "jobs", "saved_us",
    list_filter=("grain",), search_fields=("tenant",),
)  # fmt: skip
_look(
    kernels.KernelVersion, "kernel", "number", "state", "submitted_by", "decided_by", "submitted_at",
    also=("kernel", "submitted_by", "decided_by"), list_filter=("state",),
    search_fields=("kernel__name", "author"),
)  # fmt: skip
_look(
    kernels.KernelDecision, "version", "step", "who", "reason", "created_at",
    also=("version__kernel",), search_fields=("who", "reason"),
)  # fmt: skip
_look(
    catalog.Operator, "summary", "op_type", "dtype", "key", "created_at",
    list_filter=("dtype",), search_fields=("summary", "key", "op_type"),
)  # fmt: skip
_look(catalog.Target, "capability", "kind", "arch", "key", "served_until")
_look(catalog.Setting, "threads", "cache", "key")
_look(catalog.Environment, "__str__", "digest")
_look(
    catalog.Implementation, "operator", "route", "method", "label", "target", "scope", "created_at",
    "revoked_at", also=("operator", "target"), list_filter=("method", "route", "scope"),
    search_fields=(*_OPERATOR, "label"),
)  # fmt: skip
_look(
    catalog.Best, "operator", "route", "rank", "median_us", "ratio_to_default", "scope", "published_at",
    also=("operator",), list_filter=("method", "route"), search_fields=_OPERATOR,
)  # fmt: skip
_look(
    catalog.Miss, "operator", "state", "reason", "count", "calls", "related", "last_asked_at",
    also=("operator",), list_filter=("state", "related", "target"), search_fields=(*_OPERATOR, "reason"),
)  # fmt: skip
_look(
    catalog.Job, "name", "organisation", "created_at", also=("organisation",), search_fields=("name",)
)  # fmt: skip
_look(
    catalog.DeclaredEnvironment, "target", "route", "environment", also=("target", "environment")
)  # fmt: skip
_look(
    tuning.Exploration, "operator", "state", "stage", "priority", "worth", "tries", "lease_owner",
    "updated_at", also=("operator",), list_filter=("state", "stage", "priority", "capability"),
    search_fields=(*_OPERATOR, "error"),
)  # fmt: skip
_look(
    tuning.Trial, "exploration_id", "route", "label", "stage", "status", "median_us", "created_at",
    list_filter=("status", "method", "route", "stage"), search_fields=("detail", "label"),
)  # fmt: skip
_look(
    tuning.Worker, "name", "host", "target", "tier", "doing", "last_seen_at", "stopped_at", also=("target",)
)  # fmt: skip
