"""Django's administration of what has no page of its own, and a plain look at every table.

Evidence is read-only here: implementations, measurements and bests are made by workers alone, and keys by
``catalog.services.create_api_key`` alone, since only that shows the secret.
"""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from catalog import models as catalog
from tuning import models as tuning

admin.site.site_header = "Opatlas administration"
admin.site.site_title = "Opatlas"
admin.site.index_title = "Tables"


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


@admin.register(catalog.Organisation)
class OrganisationAdmin(admin.ModelAdmin):
    list_display = ("name", "created_at")
    search_fields = ("name",)


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
