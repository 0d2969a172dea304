"""Uploads: what is given to the service in one piece, until it has become rows."""

from __future__ import annotations

from django.db import models

from catalog.fields import ExactJSONField
from catalog.models import ApiKey, Model, Organisation, Setting, StoredPlan, Target


class UploadKind(models.TextChoices):
    MODEL = "model", "model"  # an ONNX file or an operator list
    PLAN = "plan", "request for a plan"


class UploadState(models.TextChoices):
    """receiving → waiting → running → done | refused | cancelled | dead"""

    RECEIVING = "receiving", "is being received"
    WAITING = "waiting", "waits for a worker"
    RUNNING = "running", "a worker takes it apart"
    DONE = "done", "taken apart"
    REFUSED = "refused", "refused"
    CANCELLED = "cancelled", "cancelled"
    DEAD = "dead", "given up"  # the service's own fault: the reason is kept


OPEN = (UploadState.RECEIVING, UploadState.WAITING, UploadState.RUNNING)


class Upload(models.Model):
    """One upload: its bytes lie in the store until it has ended (``tuning.uploads.storage``).

    Claimed like an exploration: compare-and-swap on ``fence``, a lease on the database's clock.
    ``operators_done`` of ``operators_total`` were asked for, each once, whoever takes it over.
    """

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="uploads")
    api_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, related_name="+")
    kind = models.CharField(max_length=10, choices=UploadKind, default=UploadKind.MODEL)
    name = models.CharField(max_length=200, blank=True)
    dims = ExactJSONField(default=dict)
    as_float32 = models.BooleanField(default=False)
    # None: one that is served when it is taken apart, with its default setting.
    target = models.ForeignKey(Target, models.SET_NULL, null=True, related_name="+")
    setting = models.ForeignKey(Setting, models.SET_NULL, null=True, related_name="+")
    size_bytes = models.BigIntegerField(default=0)
    sha256 = models.CharField(max_length=64, blank=True)  # of the content with its wishes
    state = models.CharField(max_length=20, choices=UploadState, default=UploadState.RECEIVING)
    reason = models.CharField(max_length=1000, blank=True)  # why it was refused or given up
    doing = models.CharField(max_length=200, blank=True)
    operators_done = models.PositiveIntegerField(default=0)
    operators_total = models.PositiveIntegerField(default=0)
    hit_calls = models.BigIntegerField(default=0)
    model = models.ForeignKey(Model, models.SET_NULL, null=True, related_name="+")
    plan = models.ForeignKey(StoredPlan, models.SET_NULL, null=True, related_name="+")
    is_new = models.BooleanField(default=False)  # what came of it was not there before
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    spent_s = models.FloatField(default=0.0)  # of a worker
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["state", "id"], condition=models.Q(state__in=OPEN), name="open_uploads"),
            models.Index(fields=["organisation", "-id"], name="uploads_of_organisation"),
        ]

    def __str__(self) -> str:
        return f"upload {self.pk}: {self.name or self.kind}"

    @property
    def is_open(self) -> bool:
        return self.state in OPEN
