"""Who asked for what: jobs, models, and misses."""

from __future__ import annotations

from django.db import models

from catalog.models.accounts import ApiKey, Organisation
from catalog.models.known import Method, Operator, ScopedKey, Setting, Target

UNNAMED = "(unnamed)"


class Job(models.Model):
    """A training or inference run, wherever its processes are. Reuse is counted in jobs: in named ones.

    The one of an organisation without a name (``""``, which names none in a request) is no run: in its rows
    are all lookups that named no job, counted as a job's are. Usage and misses do not refer to it."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="jobs")
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="one_job_per_name")]

    def __str__(self) -> str:
        return self.said

    @property
    def said(self) -> str:
        """Its name, or what people read where there is none."""
        return self.name or UNNAMED


class JobOperator(models.Model):
    """What one job asked for: the grain of reuse (jobs per operator) and of a job's report. Hits are lookups,
    those that its clients' caches answered included."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="operators")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="jobs")
    hits = models.PositiveBigIntegerField(default=0)
    default_hits = models.PositiveBigIntegerField(default=0, db_default=0)  # of them: of the default itself
    neighbour_hits = models.PositiveBigIntegerField(default=0, db_default=0)  # measured on another target
    misses = models.PositiveBigIntegerField(default=0)
    hit_calls = models.FloatField(default=0, db_default=0)  # calls that the job makes of what was served,
    miss_calls = models.FloatField(default=0, db_default=0)  # and of what was not
    saved_us = models.FloatField(default=0, db_default=0)  # of hits: calls × (default - served)
    last_at = models.DateTimeField(auto_now=True)
    # Its place in the order in which the job first asked (catalog.usage.succession); None: in none.
    number = models.PositiveIntegerField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "operator"], name="one_row_per_job_and_operator")
        ]


class JobDay(models.Model):
    """What hits of one method came to for one job on one day (UTC), in lookups like ``JobOperator``: counted
    where usage is drained, in the same transaction."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="days")
    start = models.DateTimeField()
    method = models.CharField(max_length=20, choices=Method)
    hits = models.PositiveBigIntegerField(default=0)
    default_hits = models.PositiveBigIntegerField(default=0, db_default=0)
    calls = models.FloatField(default=0)
    default_us = models.FloatField(default=0)  # calls × the default's time
    saved_us = models.FloatField(default=0)  # calls × (default - served)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "start", "method"], name="one_row_per_job_day_and_method")
        ]


class JobCacheDay(models.Model):
    """What a job's clients said of one day (UTC): lookups that they answered themselves, and what they
    fetched for later. Counted once for each report, in the transaction that counts its uses."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="cache_days")
    start = models.DateTimeField()
    memory_hits = models.PositiveBigIntegerField(default=0)  # answered from a process's memory,
    machine_hits = models.PositiveBigIntegerField(default=0)  # and from the cache that a machine shares
    unasked_misses = models.PositiveBigIntegerField(default=0)  # answered empty without asking the service,
    unasked_counted = models.PositiveBigIntegerField(
        default=0
    )  # and of these, of operators: their misses too
    prefetched = models.PositiveBigIntegerField(default=0)  # operators that came along with an answer
    prefetched_used = models.PositiveBigIntegerField(default=0)  # of them: looked up afterwards
    prefetched_bytes = models.PositiveBigIntegerField(default=0)  # answers and manifests
    prefetched_used_bytes = models.PositiveBigIntegerField(default=0)
    prefetch_requests = models.PositiveBigIntegerField(default=0)  # made for such alone

    class Meta:
        constraints = [models.UniqueConstraint(fields=["job", "start"], name="one_cache_row_per_job_and_day")]


class JobPlace(models.Model):
    """Where a job was served: hardware and setting. Coverage is judged there."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="places")
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "target", "setting"], name="one_row_per_job_and_place")
        ]


class Model(models.Model):
    """A model or an operator list that somebody gave, taken apart into operators with counts."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, null=True, related_name="models")
    name = models.CharField(max_length=200)
    sha256 = models.CharField(max_length=64)  # of the bytes that were given
    form = models.CharField(max_length=20)  # "onnx" or "operator-list"
    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="+")
    calls = models.PositiveIntegerField(default=0)  # compute calls of one run, the unmapped ones included
    unmapped = models.JSONField(default=dict)  # reason → calls that could not be expressed
    hits_before = models.FloatField(default=0)  # share of calls that hit when it was first asked for
    # "m1:…", of an ONNX model: of its structure without its weights. Empty where that was not kept.
    structure_key = models.CharField(max_length=80, blank=True, default="", db_default="")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "sha256", "target", "setting", "name"], name="one_model_per_content"
            )
        ]

    def __str__(self) -> str:
        return self.name


class StoredStructure(models.Model):
    """A model's structure (``opatlas.graph.structure``): edges, types and operators, no weights. A table of
    its own, since lists of models do not read it."""

    model = models.OneToOneField(Model, models.CASCADE, related_name="structure")
    packed = models.BinaryField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"of {self.model_id}"


class ModelOperator(models.Model):
    """One of a model's operators, and how often one run of the model calls it."""

    model = models.ForeignKey(Model, models.CASCADE, related_name="operators")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="models")
    calls = models.PositiveIntegerField()
    example = models.CharField(max_length=300)  # the name of one node it came from

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["model", "operator"], name="one_row_per_model_operator")
        ]


class MissState(models.TextChoices):
    WAITING = "waiting"  # in the collect queue, undecided
    PROMOTED = "promoted"  # being explored, or queued for it
    POSTPONED = "postponed"
    DISCARDED = "discarded"
    EXPLORED = "explored"  # a best exists
    UNSUPPORTED = "unsupported"  # no route can
    FAILED = "failed"  # explored, and nothing verified came of it


class Miss(ScopedKey):
    """Asked for and not known. The table of waiting misses is the collect queue."""

    count = models.PositiveIntegerField(default=1)  # how often it was asked for
    calls = models.FloatField(default=1)  # how many calls those jobs make of it: part of its worth
    related = models.BooleanField(default=False)  # only ever named as related, never asked for itself
    state = models.CharField(max_length=20, choices=MissState, default=MissState.WAITING)
    reason = models.CharField(max_length=500, blank=True)
    api_key = models.ForeignKey(ApiKey, models.SET_NULL, null=True, related_name="misses")
    job = models.ForeignKey(Job, models.SET_NULL, null=True, related_name="+")
    first_asked_at = models.DateTimeField(auto_now_add=True)
    last_asked_at = models.DateTimeField(auto_now=True)
    waited_until = models.DateTimeField(null=True, blank=True)  # somebody waits for the answer until then

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "scope"], name="one_miss_per_key"
            )
        ]
        indexes = [
            models.Index(fields=["state", "related", "first_asked_at"], name="collect_order"),
            models.Index(fields=["api_key", "state"], name="queued_per_key"),
        ]
