"""Django's administration for tables without a page of their own, and a plain view of every table.

Evidence is read-only here: only workers make implementations, measurements and bests. Only
``catalog.people.keys.create_api_key`` makes keys, since it shows the secret.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from catalog import models as catalog
from catalog.people.own_keys import closing_keys_beyond
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
    """A read-only table; counts are left out, since tables grow to millions."""

    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class TakesRights(admin.ModelAdmin):
    """A form that may take a person's rights: keys that the person made with them are closed too."""

    def whose(self, number: str) -> QuerySet[User]:
        """The people whom the row with this number concerns."""
        raise NotImplementedError

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        changes = request.method == "POST" and (object_id or "").isdigit()
        users = list(self.whose(object_id or "").values_list("pk", flat=True)) if changes else []
        with closing_keys_beyond(users) if users else nullcontext():
            return super().changeform_view(request, object_id, form_url, extra_context)


class MembershipInline(admin.TabularInline):
    """Members with their roles; the page of people also ends sessions and keeps an admin everywhere."""

    model = catalog.Membership
    extra = 0
    autocomplete_fields = ("user", "organisation")


@admin.register(catalog.Organisation)
class OrganisationAdmin(TakesRights):
    list_display = ("name", "host", "created_at")
    search_fields = ("name",)
    inlines = (MembershipInline,)

    def whose(self, number: str) -> QuerySet[User]:
        return User.objects.filter(memberships__organisation=int(number))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # usage, bills and the audit log are evidence


admin.site.unregister(User)


@admin.register(User)
class PersonAdmin(TakesRights, UserAdmin):
    inlines = (MembershipInline,)

    def whose(self, number: str) -> QuerySet[User]:
        return User.objects.filter(pk=number)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False  # what somebody decided stays somebody's: switch the account off instead


@admin.register(catalog.Invitation)
class InvitationAdmin(Looked):
    list_display = ("organisation", "role", "email", "invited_by", "created_at", "expires_at", "accepted_by",
                    "withdrawn_at")  # fmt: skip
    list_select_related = ("organisation", "invited_by", "accepted_by")
    exclude = ("nonce",)


@admin.register(catalog.SignIn)
class SignInAdmin(Looked):
    list_display = ("user", "began_at", "address", "agent")
    list_select_related = ("user",)
    exclude = ("session_key",)


@admin.register(catalog.AuditEntry)
class AuditEntryAdmin(Looked):
    list_display = ("at", "actor", "action", "subject", "organisation", "address", "request_id")
    list_filter = ("organisation",)
    list_select_related = ("organisation",)
    search_fields = ("actor", "action", "subject", "request_id")
    date_hierarchy = "at"


@admin.register(catalog.Rollup)
class RollupAdmin(Looked):
    list_display = ("name", "made_at", "took_s")


@admin.register(catalog.TrafficSlot)
class TrafficSlotAdmin(Looked):
    list_display = ("tenant", "grain", "start", "hits", "misses", "operators_asked", "jobs", "saved_us")
    list_filter = ("grain",)
    search_fields = ("tenant",)


@admin.register(kernels.KernelVersion)
class KernelVersionAdmin(Looked):
    list_display = ("kernel", "number", "state", "submitted_by", "decided_by", "submitted_at")
    list_filter = ("state",)
    list_select_related = ("kernel", "submitted_by", "decided_by")
    search_fields = ("kernel__name", "author")


@admin.register(kernels.KernelDecision)
class KernelDecisionAdmin(Looked):
    list_display = ("version", "step", "who", "reason", "created_at")
    list_select_related = ("version__kernel",)
    search_fields = ("who", "reason")


@admin.register(catalog.ApiKey)
class ApiKeyAdmin(admin.ModelAdmin):
    list_display = ("prefix", "name", "organisation", "scopes", "last_used_at", "expires_at", "revoked_at")
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


@admin.register(catalog.Operator)
class OperatorAdmin(Looked):
    list_display = ("summary", "op_type", "dtype", "key", "created_at")
    list_filter = ("dtype",)
    search_fields = ("summary", "key", "op_type")


@admin.register(catalog.Target)
class TargetAdmin(Looked):
    list_display = ("capability", "kind", "arch", "key", "served_until")


@admin.register(catalog.Setting)
class SettingAdmin(Looked):
    list_display = ("threads", "cache", "key")


@admin.register(catalog.Environment)
class EnvironmentAdmin(Looked):
    list_display = ("__str__", "digest")


@admin.register(catalog.Implementation)
class ImplementationAdmin(Looked):
    list_display = ("operator", "route", "method", "label", "target", "scope", "created_at", "revoked_at")
    list_filter = ("method", "route", "scope")
    list_select_related = ("operator", "target")
    search_fields = ("operator__key", "operator__summary", "label")


@admin.register(catalog.Best)
class BestAdmin(Looked):
    list_display = ("operator", "route", "rank", "median_us", "ratio_to_default", "scope", "published_at")
    list_filter = ("method", "route")
    list_select_related = ("operator",)
    search_fields = ("operator__key", "operator__summary")


@admin.register(catalog.Miss)
class MissAdmin(Looked):
    list_display = ("operator", "state", "reason", "count", "calls", "related", "last_asked_at")
    list_filter = ("state", "related", "target")
    list_select_related = ("operator",)
    search_fields = ("operator__key", "operator__summary", "reason")


@admin.register(catalog.Job)
class JobAdmin(Looked):
    list_display = ("name", "organisation", "created_at")
    list_select_related = ("organisation",)
    search_fields = ("name",)


@admin.register(catalog.Model)
class ModelAdmin(Looked):
    list_display = ("name", "organisation", "form", "calls", "target", "created_at")
    list_select_related = ("organisation", "target")
    search_fields = ("name", "sha256")

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.is_superuser)


@admin.register(tuning.Exploration)
class ExplorationAdmin(Looked):
    list_display = ("operator", "state", "stage", "priority", "worth", "tries", "lease_owner", "updated_at")
    list_filter = ("state", "stage", "priority", "capability")
    list_select_related = ("operator",)
    search_fields = ("operator__key", "operator__summary", "error")


@admin.register(tuning.Trial)
class TrialAdmin(Looked):
    list_display = ("exploration_id", "route", "label", "stage", "status", "median_us", "created_at")
    list_filter = ("status", "method", "route", "stage")
    search_fields = ("detail", "label")


@admin.register(tuning.Worker)
class WorkerAdmin(Looked):
    list_display = ("name", "host", "target", "tier", "doing", "last_seen_at", "stopped_at")
    list_select_related = ("target",)


@admin.register(catalog.DeclaredEnvironment)
class DeclaredEnvironmentAdmin(Looked):
    list_display = ("target", "route", "environment")
    list_select_related = ("target", "environment")


@admin.register(tuning.Pause)
class PauseAdmin(admin.ModelAdmin):
    list_display = ("capability", "reason", "created_at")
