"""Organisations, people and keys, and who did what."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone


class Organisation(models.Model):
    """A tenant. Owns keys, jobs and private implementations."""

    name = models.CharField(max_length=200, unique=True)
    # Runs the service: its members see every tenant, and their roles hold for the whole service.
    host = models.BooleanField(default=False, db_default=False)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    """What a member may do beside looking (``catalog.viewing.MAY``)."""

    VIEWER = "viewer"
    OPERATOR = "operator"  # steers queues, explorations and environments
    APPROVER = "approver"  # decides on kernels, revokes implementations
    BILLING = "billing"  # prices, credit, the ledger
    ADMIN = "admin"  # all of it, and people and keys


class Membership(models.Model):
    """A person in an organisation, with one role there."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["user", "organisation"], name="one_role_per_member")]

    def __str__(self) -> str:
        return f"{self.user}: {self.role} of {self.organisation}"


class Invitation(models.Model):
    """An offer to join an organisation. Its link carries a signed token: nothing here opens it."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="invitations")
    role = models.CharField(max_length=20, choices=Role, default=Role.VIEWER)
    email = models.EmailField(blank=True)
    nonce = models.CharField(max_length=32, unique=True)
    invited_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.role} of {self.organisation}: {self.email or 'by link'}"


class SignIn(models.Model):
    """A browser in which somebody is logged in: what finds a person's sessions, to show and to end them."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="sign_ins")
    session_key = models.CharField(max_length=40, unique=True)
    began_at = models.DateTimeField(auto_now_add=True)
    address = models.CharField(max_length=64, blank=True)
    agent = models.CharField(max_length=200, blank=True)

    def __str__(self) -> str:
        return f"{self.user} since {self.began_at:%Y-%m-%d %H:%M}"


class ApiKey(models.Model):
    """A key that a job shows. Only its SHA-256 is kept; ``prefix`` finds and names it."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="api_keys")
    # Whose key it is: needed where a person answers for what is done (kernels). Empty: a service's.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="api_keys"
    )
    # Who made a service's key, and knows its text: it is closed with that person's rights. Empty: the shell.
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="keys_made"
    )
    # With which key it was made: that is all that is known of one that the shell's key made.
    made_by_key = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="keys_made")
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)  # of catalog.people.keys.SCOPES
    max_queued_misses = models.PositiveIntegerField(default=10_000)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)  # from then on it opens nothing; empty: never
    addresses = models.JSONField(null=True, blank=True)  # networks that it is used from; null: from anywhere

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"

    @property
    def answerable_id(self) -> int | None:
        """The person with whose rights it ends."""
        return self.user_id or self.made_by_id

    @property
    def expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= timezone.now()


class OnlyAddedTo(models.QuerySet["AuditEntry"]):
    """Rows that nobody changes or deletes; the database refuses that too (migrations 0002 and 0018). Old ones
    leave it by ``catalog.people.archiving`` alone."""

    def update(self, **values: object) -> int:
        raise TypeError("The audit log is only ever added to.")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise TypeError("The audit log is only ever added to.")


class AuditEntry(models.Model):
    """Who did what, when, from where. Only ever added to."""

    objects = OnlyAddedTo.as_manager()

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True, related_name="+"
    )
    api_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, blank=True, related_name="+")
    actor = models.CharField(max_length=200)  # as it was called then: a deleted account stays readable
    organisation = models.ForeignKey(Organisation, models.SET_NULL, null=True, blank=True, related_name="+")
    action = models.CharField(max_length=80)  # "kernel.approve", "queue.pause", "key.create"
    subject = models.CharField(max_length=300, blank=True)  # what it was done to, readable
    detail = models.JSONField(default=dict)
    request_id = models.CharField(max_length=64, blank=True)
    address = models.CharField(max_length=64, blank=True)

    class Meta:
        indexes = [models.Index(fields=["organisation", "-at"], name="audit_of_organisation")]
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.subject}".rstrip()

    def save(self, *args: Any, **options: Any) -> None:
        if self.pk is not None:
            raise TypeError("The audit log is only ever added to.")
        super().save(*args, **options)

    def delete(self, *args: Any, **options: Any) -> tuple[int, dict[str, int]]:
        raise TypeError("The audit log is only ever added to.")
