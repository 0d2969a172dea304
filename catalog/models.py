"""What is known: operators, targets, implementations and their evidence, who asked, and who was served."""

from __future__ import annotations

from django.conf import settings
from django.db import models

from catalog.fields import ExactJSONField

SHARED = "shared"
"""The scope of everything common; a private entry's scope is ``org:<id>``."""


class Method(models.TextChoices):
    LIBRARY = "library"
    COMPILER = "compiler"
    MANUAL = "manual"


class Organisation(models.Model):
    """A tenant. Owns keys, jobs and private implementations."""

    name = models.CharField(max_length=200, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.name


class ApiKey(models.Model):
    """A key that a job shows. Only its SHA-256 is kept; ``prefix`` finds and names it."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="api_keys")
    # Whose key it is: needed where a person answers for what is done (kernels). Empty: a service's.
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, null=True, blank=True, related_name="api_keys"
    )
    name = models.CharField(max_length=200)
    prefix = models.CharField(max_length=16, unique=True)
    secret_sha256 = models.CharField(max_length=64)
    scopes = models.JSONField(default=list)  # of catalog.services.keys.SCOPES
    max_queued_misses = models.PositiveIntegerField(default=10_000)
    created_at = models.DateTimeField(auto_now_add=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.prefix}… ({self.name})"


class Job(models.Model):
    """A training or inference run, wherever its processes are. Reuse is counted in jobs."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="jobs")
    name = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["organisation", "name"], name="one_job_per_name")]

    def __str__(self) -> str:
        return self.name


class Operator(models.Model):
    """A canonical ONNX graph, by key. ``graph`` is ``opatlas.identity.Operator.to_json()``."""

    key = models.CharField(max_length=80, unique=True)
    graph = ExactJSONField()
    op_type = models.CharField(max_length=100, db_index=True)  # "Conv"; "Conv+Relu" where fused
    summary = models.CharField(max_length=300)  # "Conv 1×64×56×56, 64×64×3×3 float32"
    dtype = models.CharField(max_length=20)
    flops = models.FloatField(default=0)  # of one run, estimated
    bytes_moved = models.FloatField(default=0)  # inputs and outputs of one run
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.summary


class Target(models.Model):
    """Hardware. ``description`` is ``opatlas.identity.Target.to_json()``."""

    key = models.CharField(max_length=80, unique=True)
    kind = models.CharField(max_length=20)
    arch = models.CharField(max_length=50)
    capability = models.CharField(max_length=80, db_index=True)  # its Celery queue: "cpu.zen5"
    description = ExactJSONField()
    served_until = models.DateTimeField(null=True, blank=True)  # moved on by every live worker's heartbeat
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.capability} ({self.key[:11]})"


class Setting(models.Model):
    """Threads, cache state, numerics. ``description`` is ``opatlas.identity.Setting.to_json()``."""

    key = models.CharField(max_length=80, unique=True)
    threads = models.PositiveIntegerField()
    cache = models.CharField(max_length=10)
    description = ExactJSONField()

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.cache} cache"


class Environment(models.Model):
    """Versions that produced a result. Kept with every result; in no key."""

    digest = models.CharField(max_length=64, unique=True)
    versions = ExactJSONField()  # {"torch": "2.13.0", …}

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))


class Artifact(models.Model):
    """A manifest, by its SHA-256; the files it names lie content-addressed in the artifact store."""

    sha256 = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=20)
    manifest = ExactJSONField()
    signature = models.CharField(max_length=128, blank=True)  # Ed25519 over the manifest's bytes, hexadecimal
    signer = models.CharField(max_length=64, blank=True)  # the public key's SHA-256
    size_bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.sha256[:12]


class Signer(models.Model):
    """Whose signature on a manifest counts. Its private key is a worker's; here is the public one only."""

    sha256 = models.CharField(max_length=64, unique=True)  # of the raw public key: how a manifest names it
    public_key = models.CharField(max_length=64)  # raw Ed25519, hexadecimal
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True, blank=True)  # since then its signatures are refused

    def __str__(self) -> str:
        return self.sha256[:12]


class DeclaredEnvironment(models.Model):
    """The one environment whose evidence moves a best, per target and route."""

    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    route = models.CharField(max_length=40)
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["target", "route"], name="one_declared_environment")]

    def __str__(self) -> str:
        return f"{self.route}: {self.environment}"


class ScopedKey(models.Model):
    """(operator, target, setting, scope): what a best, a miss and an exploration are about."""

    operator = models.ForeignKey(Operator, models.CASCADE, related_name="%(class)s_set")
    target = models.ForeignKey(Target, models.CASCADE, related_name="%(class)s_set")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="%(class)s_set")
    scope = models.CharField(max_length=30, default=SHARED)
    owner = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")

    class Meta:
        abstract = True


class Implementation(ScopedKey):
    """What a route made for an operator, with all that is needed to see, load and rebuild it."""

    route = models.CharField(max_length=40)
    method = models.CharField(max_length=20, choices=Method)
    label = models.CharField(max_length=200)
    candidate = ExactJSONField()
    candidate_sha256 = models.CharField(max_length=64)
    schedule = models.TextField(blank=True)
    source = models.TextField(blank=True)
    artifact = models.ForeignKey(Artifact, models.PROTECT, related_name="implementations")
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="implementations")
    build_s = models.FloatField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    revoked_reason = models.CharField(max_length=300, blank=True, db_default="")
    # Found wrong after it was published, in this environment; evidence of later makes it well again.
    failed_at = models.DateTimeField(null=True, blank=True)
    failed_reason = models.CharField(max_length=300, blank=True, db_default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "scope", "route", "candidate_sha256", "environment"],
                name="one_implementation_per_candidate",
            )
        ]
        indexes = [
            models.Index(
                fields=["revoked_at"], condition=models.Q(revoked_at__isnull=False), name="revoked_lately"
            )
        ]

    def __str__(self) -> str:
        return f"{self.route}: {self.label}"


class Measurement(models.Model):
    """The evidence for one implementation. Ratios are default ÷ candidate: above 1 is faster."""

    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="measurements")
    median_us = models.FloatField()
    spread_us = models.FloatField()
    default_us = models.FloatField()
    ratio_to_default = models.FloatField()
    ratio_low = models.FloatField()
    ratio_high = models.FloatField()
    samples_us = ExactJSONField(default=list)
    max_error = models.FloatField(null=True)
    tolerance = models.FloatField(null=True)
    prepare_us = models.FloatField(null=True)
    prepare_bytes = models.BigIntegerField(null=True)
    tier = models.CharField(max_length=4)
    purpose = models.CharField(max_length=20, default="contest")  # or "default", "confirm"
    # What the ratio was taken against. Empty: not noted, and then it holds in every environment.
    default_route = models.CharField(max_length=40, blank=True, db_default="")
    default_environment = models.ForeignKey(Environment, models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.median_us:.1f} µs"


class Best(ScopedKey):
    """The best verified implementation of one route; a lookup takes the fastest that it can load.

    What a lookup answers (times, ratios, label, the artifact's address and needs) is repeated here, so that
    it reads one table and parses no JSON. ``needs`` is ``catalog.needs.needs_text``: "onnxruntime==1.31.1".
    """

    route = models.CharField(max_length=40)
    method = models.CharField(max_length=20, choices=Method)
    kind = models.CharField(max_length=20)  # artifact kind
    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="+")
    measurement = models.ForeignKey(Measurement, models.PROTECT, related_name="+")
    label = models.CharField(max_length=200)
    artifact_sha256 = models.CharField(max_length=64)
    needs = models.CharField(max_length=500, blank=True)
    median_us = models.FloatField()
    spread_us = models.FloatField()
    default_us = models.FloatField()
    ratio_to_default = models.FloatField()
    ratio_low = models.FloatField()
    ratio_high = models.FloatField()
    measured_at = models.DateTimeField()
    rank = models.PositiveIntegerField(default=0)  # 0 is the winner among all routes
    published_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "scope", "route"], name="one_best_per_route"
            )
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.median_us:.1f} µs"


class BestChange(ScopedKey):
    """History: who became the winner, whom it replaced, and why."""

    before = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")
    after = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")
    reason = models.CharField(max_length=300)
    created_at = models.DateTimeField(auto_now_add=True)


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


class JobOperator(models.Model):
    """What one job asked for: the grain of reuse (jobs per operator) and of a job's report."""

    job = models.ForeignKey(Job, models.CASCADE, related_name="operators")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="jobs")
    hits = models.PositiveIntegerField(default=0)
    misses = models.PositiveIntegerField(default=0)
    last_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["job", "operator"], name="one_row_per_job_and_operator")
        ]


class Usage(models.Model):
    """One record per hit served. The journal's position makes draining it twice harmless."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="usage")
    job = models.ForeignKey(Job, models.SET_NULL, null=True, related_name="usage")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="usage")
    implementation = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="usage")
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40)
    median_us = models.FloatField()
    default_us = models.FloatField()
    calls = models.FloatField(default=1)
    served_at = models.DateTimeField(db_index=True)
    node = models.CharField(max_length=60)
    segment = models.CharField(max_length=60)
    offset = models.BigIntegerField()
    item = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "segment", "offset", "item"], name="one_usage_per_journal_item"
            )
        ]


class LookupTally(models.Model):
    """Hits and misses per operator and hour, counted from the journal: what hit rates are made of."""

    hour = models.DateTimeField()
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="tallies")
    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    hits = models.PositiveIntegerField(default=0)
    misses = models.PositiveIntegerField(default=0)
    hit_calls = models.FloatField(default=0)
    miss_calls = models.FloatField(default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hour", "operator", "organisation"], name="one_tally_per_hour")
        ]


class JournalSegment(models.Model):
    """How far a node's journal segment was drained."""

    node = models.CharField(max_length=60)
    segment = models.CharField(max_length=60)
    drained_bytes = models.BigIntegerField(default=0)
    closed = models.BooleanField(default=False)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "segment"], name="one_row_per_segment")]


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
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "sha256", "target", "setting", "name"], name="one_model_per_content"
            )
        ]

    def __str__(self) -> str:
        return self.name


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
