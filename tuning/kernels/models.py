"""Kernels, their versions, what was found out about each, and who decided what.

A version's state moves by compare-and-swap only (``tuning.kernels.states``). Nothing of a decision is ever
changed: the history is a table that is only added to.
"""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q

from catalog.fields import ExactJSONField
from catalog.models import Operator, Organisation, Setting, Target
from tuning.models import TriedRow
from tuning.routes.manual.submitted import ROUTES


class VersionState(models.TextChoices):
    """submitted → building → failed | noisy | awaiting; awaiting → approved | rejected;
    approved → revoked | suspended; a live one → superseded"""

    SUBMITTED = "submitted"  # waits for a worker, or for an operator that it matches
    BUILDING = "building"  # being built, checked and timed
    FAILED = "failed"  # it does not build, or computes something wrong
    NOISY = "noisy"  # nothing against it, but it could not be timed: its submitter may ask again
    AWAITING = "awaiting"  # evaluated; waits for somebody other than the submitter to decide
    APPROVED = "approved"  # contests every operator that it matches
    REJECTED = "rejected"
    REVOKED = "revoked"  # was approved, and is withdrawn
    SUSPENDED = "suspended"  # was approved, and then caught cheating: withdrawn at once
    SUPERSEDED = "superseded"  # a newer version took its place


LIVE_STATES = (
    VersionState.SUBMITTED,
    VersionState.BUILDING,
    VersionState.FAILED,
    VersionState.NOISY,
    VersionState.AWAITING,
    VersionState.APPROVED,
)
"""A newer version supersedes these; the others have ended already."""


LANGUAGES = [("c", "C"), ("c++", "C++"), ("cuda", "CUDA C++")]
"""What kernels are written in, and how people write it."""


class Kernel(models.Model):
    """A hand-written kernel, by name within its organisation. What it consists of is its versions."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="kernels")
    name = models.CharField(max_length=80)
    description = models.CharField(max_length=500, blank=True)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "name"], name="one_kernel_per_name"),
        ]
        permissions = [("decide", "Can approve, reject and revoke submitted kernels")]

    def __str__(self) -> str:
        return self.name

    @property
    def current(self) -> KernelVersion | None:
        """The newest version."""
        return self.versions.order_by("-number").first()


class KernelVersion(models.Model):
    """One submission: a source and what it promises. Never edited: an edit is another version."""

    kernel = models.ForeignKey(Kernel, models.CASCADE, related_name="versions")
    number = models.PositiveIntegerField()
    language = models.CharField(max_length=5, choices=LANGUAGES)
    source = models.TextField()
    source_sha256 = models.CharField(max_length=64)
    tokens_sha256 = models.CharField(max_length=64, blank=True)  # tuning.kernels.source_digest
    pattern = ExactJSONField()  # tuning.routes.manual.matching: which operators it serves
    flags = ExactJSONField(default=list)  # of tuning.routes.manual.flags
    launch = ExactJSONField(null=True, blank=True)  # of tuning.routes.manual.launch_template
    author = models.CharField(max_length=200)
    licence = models.CharField(max_length=60)  # an SPDX identifier
    example = models.ForeignKey(Operator, models.SET_NULL, null=True, blank=True, related_name="+")
    state = models.CharField(max_length=20, choices=VersionState, default=VersionState.SUBMITTED)
    state_reason = models.CharField(max_length=500, blank=True)  # why it waits, failed, or what was decided
    explorations_seen = models.BigIntegerField(default=0)  # the newest that it was matched against
    submitted_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    submitted_at = models.DateTimeField(auto_now_add=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+"
    )
    decided_at = models.DateTimeField(null=True, blank=True)
    approved_at = models.DateTimeField(null=True, blank=True)
    withdrawn_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["kernel", "number"], name="one_kernel_version_per_number"),
            models.UniqueConstraint(
                fields=["kernel"], condition=Q(state__in=LIVE_STATES), name="one_live_version_per_kernel"
            ),
            # Nobody approves what he submitted: not by a slip of the code either.
            models.CheckConstraint(
                condition=~Q(state=VersionState.APPROVED)
                | (Q(decided_by__isnull=False) & ~Q(decided_by=models.F("submitted_by"))),
                name="approved_by_another_user",
            ),
        ]
        indexes = [
            models.Index(fields=["state"], name="kernel_versions_by_state"),
            models.Index(fields=["source_sha256"], name="kernel_versions_by_source"),
            models.Index(fields=["tokens_sha256"], name="kernel_versions_by_tokens"),
        ]

    def __str__(self) -> str:
        return self.label

    @property
    def route(self) -> str:
        """The route that contests it."""
        return ROUTES[self.language]

    @property
    def label(self) -> str:
        return f"{self.kernel.name} v{self.number}"


class KernelDecision(models.Model):
    """One step of a version's history: what happened, who did it, and why. Only ever added."""

    version = models.ForeignKey(KernelVersion, models.CASCADE, related_name="decisions")
    step = models.CharField(max_length=20, choices=[*VersionState.choices, ("noted", "Noted")])
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, blank=True, related_name="+"
    )
    who = models.CharField(max_length=150)  # the user's name then, or the worker's
    reason = models.CharField(max_length=500, blank=True)
    looked_at = ExactJSONField(default=dict)  # piece of evidence → the digest that was shown
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    @property
    def looked_at_words(self) -> str:
        return ", ".join(name.replace("_", " ") for name in self.looked_at)


class EvaluationState(models.TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"  # given up: its worker died each time, or its version is no longer wanted


class KernelEvaluation(TriedRow):
    """A version tried on one operator: built, checked, timed against the default and the incumbent.

    Claimed like an exploration: compare-and-swap on ``fence``, a lease on the database's clock. Times in µs;
    ratios are default ÷ kernel (or incumbent): above 1 is faster.
    """

    version = models.ForeignKey(KernelVersion, models.CASCADE, related_name="evaluations")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="+")
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    state = models.CharField(max_length=20, choices=EvaluationState, default=EvaluationState.QUEUED)
    lease_owner = models.CharField(max_length=100, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    fence = models.PositiveBigIntegerField(default=0)
    tries = models.PositiveSmallIntegerField(default=0)
    doing = models.CharField(max_length=200, blank=True)
    status = models.CharField(max_length=20, blank=True)  # tuning.measure.outcome.Status
    default_us = models.FloatField(null=True)
    incumbent_route = models.CharField(max_length=40, blank=True)
    incumbent_label = models.CharField(max_length=200, blank=True)
    incumbent_us = models.FloatField(null=True)
    incumbent_ratio = models.FloatField(null=True)
    incumbent_low = models.FloatField(null=True)
    incumbent_high = models.FloatField(null=True)
    times = ExactJSONField(default=list)  # the kernel beside every other method's best
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["version", "operator", "target", "setting"], name="one_evaluation_per_place"
            )
        ]
        indexes = [models.Index(fields=["state", "target"], name="evaluations_to_claim")]

    def __str__(self) -> str:
        return f"{self.version} on {self.operator}"


class TryStatus(models.TextChoices):
    """How a try may end beside ``tuning.measure.outcome.Status``."""

    DIED = "died"  # its worker fell silent, or broke: nothing is known of the kernel


class KernelTry(TriedRow):
    """One try of an evaluation, whatever came of it. Only ever added: a later try hides no earlier one.

    Kept by the database itself (migration ``evidence_guards``). Times in µs; ratios are default ÷ kernel.
    """

    evaluation = models.ForeignKey(KernelEvaluation, models.CASCADE, related_name="tried")
    version = models.ForeignKey(KernelVersion, models.CASCADE, related_name="tries")
    number = models.PositiveSmallIntegerField()  # within its evaluation, from 1
    fence = models.PositiveBigIntegerField()  # the claim under which it ran
    status = models.CharField(max_length=20)  # tuning.measure.outcome.Status, or TryStatus
    default_us = models.FloatField(null=True)
    incumbent_ratio = models.FloatField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]
        constraints = [
            models.UniqueConstraint(fields=["evaluation", "number"], name="one_try_per_number"),
            models.UniqueConstraint(fields=["evaluation", "fence"], name="one_try_per_claim"),
        ]

    def __str__(self) -> str:
        return f"try {self.number} of {self.evaluation}"

    @property
    def operator(self) -> Operator:
        return self.evaluation.operator


class KernelInspection(models.Model):
    """What a worker saw of one build beside its results and times: only ever added.

    ``observed``, ``risks`` and ``code`` are :mod:`tuning.measure.observing`'s own JSON, bounded there.
    """

    evaluation = models.ForeignKey(KernelEvaluation, models.CASCADE, related_name="inspections")
    version = models.ForeignKey(KernelVersion, models.CASCADE, related_name="inspections")
    observed = ExactJSONField(default=dict)  # of the untimed run
    risks = ExactJSONField(default=list)  # [{"severity", "text"}], the gravest first
    code = ExactJSONField(default=dict)  # what the machine code calls and holds
    assembly = models.TextField(blank=True)
    provenance = ExactJSONField(default=dict)  # the manifest's
    files = ExactJSONField(default=dict)  # the manifest's: name → SHA-256
    worker = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return f"inspection {self.pk} of {self.evaluation}"


class CaughtSource(models.Model):
    """A source that was caught cheating: remembered for good, whatever becomes of the version."""

    source_sha256 = models.CharField(max_length=64, db_index=True)
    tokens_sha256 = models.CharField(max_length=64, blank=True, db_index=True)
    version = models.ForeignKey(KernelVersion, models.SET_NULL, null=True, related_name="catches")
    label = models.CharField(max_length=300)  # organisation, kernel and version, as they were called then
    where = models.CharField(max_length=300)  # "evaluation on …", "contest on …"
    detail = models.CharField(max_length=2000)
    worker = models.CharField(max_length=100, blank=True)
    caught_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["pk"]

    def __str__(self) -> str:
        return self.label
