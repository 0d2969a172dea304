"""Plans of models that were made for somebody, and what they came to where they ran."""

from __future__ import annotations

from django.db import models

from catalog.fields import ExactJSONField
from catalog.models.accounts import Organisation
from catalog.models.asked import Model
from catalog.models.known import Setting, Target


class StoredPlan(models.Model):
    """A plan (``opatlas.plan``) with the reasons of its choices. ``sha256`` is of the plan's canonical JSON:
    the same plan made again is the same row. ``given``: the uploaded model that it was made of, if one was.
    Times in microseconds of one run, over the nodes whose times are known."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="plans")
    given = models.ForeignKey(Model, models.CASCADE, null=True, related_name="plans")
    key = models.CharField(max_length=80)  # the model's: "m1:…"
    # Where the plan is of a model's simpler form, that model's own key: who asked has said so.
    original = models.CharField(max_length=80, blank=True, default="", db_default="")
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    passes = ExactJSONField()  # names, in their order
    sha256 = models.CharField(max_length=64)
    packed = models.BinaryField()  # zlib: {"plan": …, "choices": […]}
    predicted_us = models.FloatField()
    default_us = models.FloatField()
    unknown_nodes = models.PositiveIntegerField(default=0)  # without a known time
    signature = models.CharField(max_length=128, blank=True)  # Ed25519, hexadecimal; empty: not shared
    signer = models.CharField(max_length=64, blank=True)  # the public key's SHA-256
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "sha256"],
                condition=models.Q(given=None),
                name="one_plan_per_content",
            ),
            models.UniqueConstraint(
                fields=["organisation", "given", "sha256"], name="one_plan_per_model_and_content"
            ),
        ]

    def __str__(self) -> str:
        return self.sha256[:12]


class PlanMeasured(models.Model):
    """What a session reported of a plan, last: both times of one run, in microseconds, taken in turns with
    the whole model in the default framework. A claim of its organisation's jobs, shown to nobody else."""

    plan = models.OneToOneField(StoredPlan, models.CASCADE, related_name="measured")
    plan_us = models.FloatField()
    default_us = models.FloatField()
    ratio = models.FloatField()
    ratio_low = models.FloatField()
    ratio_high = models.FloatField()
    chosen = models.BooleanField()  # whether it was what ran from then on
    reports = models.PositiveIntegerField(default=1)
    at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.ratio:.2f}×"


class PlanTimeline(models.Model):
    """One run of a plan as a session reported it, last (``opatlas.streams.timeline``). A claim of its
    organisation's jobs, shown to nobody else."""

    plan = models.OneToOneField(StoredPlan, models.CASCADE, related_name="timeline")
    packed = models.BinaryField()  # zlib: the timeline's JSON
    at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.plan_id}"
