"""What is known: operators, targets, implementations, their evidence, and the best of them."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone

from catalog.fields import ExactJSONField
from catalog.models.accounts import Organisation
from opatlas import identity
from opatlas.evidence import Ratios
from opatlas.identity.place.kinds import KINDS

SHARED = "shared"
"""The scope of everything common; a private entry's scope is ``org:<id>``."""


class Method(models.TextChoices):
    LIBRARY = "library"
    COMPILER = "compiler"
    MANUAL = "manual"


class AnswerStage(models.TextChoices):
    """How far exploring has come for a key (operator, target, setting, scope): its furthest stage that has
    ended since there is anything to serve. In their order."""

    FIRST = "first", "first result"  # the contest waits or runs
    CONTEST = "contest", "contest ended"  # tuning may follow
    TUNED = "tuned", "tuned"  # a slice of tuning has ended as well


class Purpose(models.TextChoices):
    """What a measurement was taken for."""

    DEFAULT = "default"  # the default itself
    FIRST = "first"  # in the first result's race
    CONTEST = "contest"  # in a heat: it ranks, it decides nothing
    FINAL = "final"


class Operator(models.Model):
    """A canonical ONNX graph, by key. ``graph`` is ``opatlas.identity.Operator.to_json()``."""

    key = models.CharField(max_length=80, unique=True)
    graph = ExactJSONField()
    op_type = models.CharField(max_length=100)  # "Conv"; "Conv+Relu" where fused
    summary = models.CharField(max_length=300)  # "Conv 1×64×56×56, 64×64×3×3 float32"
    dtype = models.CharField(max_length=20)
    flops = models.FloatField(default=0)  # of one run, estimated
    bytes_moved = models.FloatField(default=0)  # inputs and outputs of one run
    largest_dim = models.BigIntegerField(default=0, db_default=0)  # of any input or output
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [
            models.Index(fields=["op_type", "dtype"], name="operators_by_type"),
            models.Index(fields=["summary", "id"], name="operators_by_name"),
        ]

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

    @property
    def title(self) -> str:
        """As people tell it from others: "cpu.zen5"; of a GPU its product too."""
        product = self.description.get("product")
        return f"{self.capability} ({product})" if product else self.capability

    def __str__(self) -> str:
        return f"{self.capability} ({self.key[:11]})"


class Setting(models.Model):
    """Threads, cache state, numerics. ``description`` is ``opatlas.identity.Setting.to_json()``."""

    key = models.CharField(max_length=80, unique=True)
    threads = models.PositiveIntegerField()
    cache = models.CharField(max_length=10)
    description = ExactJSONField()

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.cache} cache ({self.key[:11]})"

    def on(self, target: Target) -> str:
        """As people read it beside a target: a GPU has no threads to choose."""
        return identity.Setting.from_json(self.description).words(KINDS[target.kind])


class Environment(models.Model):
    """Versions that produced a result. Kept with every result; in no key."""

    digest = models.CharField(max_length=64, unique=True)
    versions = ExactJSONField()  # {"torch": "2.13.0", …}

    def __str__(self) -> str:
        return ", ".join(f"{name} {version}" for name, version in sorted(self.versions.items()))


class DeclaredEnvironment(models.Model):
    """The one environment whose evidence moves a best, per target and route."""

    target = models.ForeignKey(Target, models.CASCADE, related_name="+")
    route = models.CharField(max_length=40)
    environment = models.ForeignKey(Environment, models.PROTECT, related_name="+")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["target", "route"], name="one_declared_environment")]

    def __str__(self) -> str:
        return f"{self.route}: {self.environment}"


class Artifact(models.Model):
    """A manifest, by its SHA-256; the files it names lie content-addressed in the artifact store."""

    sha256 = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=20)
    manifest = ExactJSONField()
    signature = models.CharField(max_length=128, blank=True)  # Ed25519 over the manifest's bytes, hexadecimal
    signer = models.CharField(max_length=64, blank=True)  # the public key's SHA-256
    size_bytes = models.BigIntegerField(default=0)
    created_at = models.DateTimeField(auto_now_add=True)
    # What lies in the store is not what was stored (catalog.best.damage); None: it is, as far as is known.
    damaged_at = models.DateTimeField(null=True, blank=True)
    damaged_reason = models.CharField(max_length=300, blank=True, db_default="")
    rebuild_asked_at = models.DateTimeField(null=True, blank=True)  # since it was found damaged

    class Meta:
        indexes = [
            models.Index(
                fields=["damaged_at"], condition=models.Q(damaged_at__isnull=False), name="damaged_artifacts"
            )
        ]

    def __str__(self) -> str:
        return self.sha256[:12]


class ScrubPass(models.Model):
    """How far the store was read and compared (``catalog.best.scrubbing``): one row, the courier's."""

    position = models.BigIntegerField(default=0)  # the last artifact that this pass has compared
    checked = models.BigIntegerField(default=0)  # so many
    began_at = models.DateTimeField(default=timezone.now)
    ended_at = models.DateTimeField(null=True)  # the pass before this one: all was compared since it began


class Signer(models.Model):
    """Whose signature on a manifest counts. Its private key is a worker's; here is the public one only."""

    sha256 = models.CharField(max_length=64, unique=True)  # of the raw public key: how a manifest names it
    public_key = models.CharField(max_length=64)  # raw Ed25519, hexadecimal
    created_at = models.DateTimeField(auto_now_add=True)
    retired_at = models.DateTimeField(null=True, blank=True)  # since then its signatures are refused

    def __str__(self) -> str:
        return self.sha256[:12]


SAME_KEY = ("operator_id", "target_id", "setting_id", "scope")


class ScopedKey(models.Model):
    """(operator, target, setting, scope): what a best, a miss and an exploration are about."""

    operator = models.ForeignKey(Operator, models.CASCADE, related_name="%(class)s_set")
    target = models.ForeignKey(Target, models.CASCADE, related_name="%(class)s_set")
    setting = models.ForeignKey(Setting, models.CASCADE, related_name="%(class)s_set")
    scope = models.CharField(max_length=30, default=SHARED)
    owner = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="+")

    class Meta:
        abstract = True

    @property
    def same_key(self) -> dict[str, Any]:
        """To filter by: rows, of whatever table, about the same."""
        return {name: getattr(self, name) for name in SAME_KEY}


class Implementation(ScopedKey):
    """What a route made for an operator, with all that is needed to see, load and rebuild it."""

    route = models.CharField(max_length=40)
    method = models.CharField(max_length=20, choices=Method)
    label = models.CharField(max_length=200)
    candidate = ExactJSONField()
    candidate_sha256 = models.CharField(max_length=64)
    # Number of the version of a hand-written kernel that it was made of (tuning.kernels); a number, since
    # organisations are renamed.
    kernel_version = models.BigIntegerField(null=True, blank=True)
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
            ),
            models.Index(
                fields=["failed_at"], condition=models.Q(failed_at__isnull=False), name="failed_lately"
            ),
            models.Index(fields=["environment", "target", "-id"], name="made_in_environment"),
            models.Index(
                fields=["kernel_version"],
                condition=models.Q(kernel_version__isnull=False),
                name="made_of_kernel_version",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.route}: {self.label}"


class MachineCode(models.Model):
    """Machine code of an implementation as a disassembler wrote it (``catalog.best.machine_code``)."""

    implementation = models.OneToOneField(Implementation, models.CASCADE, related_name="machine_code")
    artifact_sha256 = models.CharField(max_length=64)  # what was read: one that is built again may differ
    packed = models.BinaryField()  # zlib: the text, in UTF-8
    lines = models.PositiveIntegerField(default=0)  # in all; the text may hold the first of them only
    tool = models.CharField(max_length=40, blank=True)
    why_not = models.CharField(max_length=300, blank=True)
    read_at = models.DateTimeField(auto_now=True)

    def __str__(self) -> str:
        return f"{self.lines} lines of {self.implementation_id}"


class TimedRow(models.Model):
    """The columns that rows with evidence share (:data:`opatlas.evidence.TIMES`)."""

    median_us = models.FloatField()
    spread_us = models.FloatField()
    default_us = models.FloatField()
    ratio_to_default = models.FloatField()
    ratio_low = models.FloatField()
    ratio_high = models.FloatField()

    class Meta:
        abstract = True

    @property
    def ratios(self) -> Ratios:
        return Ratios(self.ratio_to_default, self.ratio_low, self.ratio_high)


class Measurement(TimedRow):
    """The evidence for one implementation: :class:`opatlas.evidence.Evidence`, and how it was taken."""

    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="measurements")
    samples_us = ExactJSONField(default=list)
    max_error = models.FloatField(null=True)
    tolerance = models.FloatField(null=True)
    prepare_us = models.FloatField(null=True)
    prepare_bytes = models.BigIntegerField(null=True)
    tier = models.CharField(max_length=4)
    purpose = models.CharField(max_length=20, default=Purpose.CONTEST)  # a Purpose, or a bench's
    # What the ratio was taken against. Empty: not noted, and then it holds in every environment.
    default_route = models.CharField(max_length=40, blank=True, db_default="")
    default_environment = models.ForeignKey(Environment, models.PROTECT, null=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)

    @property
    def against(self) -> str:
        """The default that it was timed in turns with, by route and environment; empty: not noted."""
        return f"{self.default_route} {self.default_environment_id}" if self.default_environment_id else ""

    def __str__(self) -> str:
        return f"{self.median_us:.1f} µs"


class Best(ScopedKey, TimedRow):
    """The best verified implementation of one route; a lookup takes the fastest that it can load.

    What a lookup answers (times, ratios, label, the artifact's address and needs) is repeated here, so that
    it reads one table and parses no JSON. ``needs`` is ``catalog.best.needs.needs_text``:
    "onnxruntime==1.31.1".
    """

    route = models.CharField(max_length=40)
    method = models.CharField(max_length=20, choices=Method)
    kind = models.CharField(max_length=20)  # artifact kind
    implementation = models.ForeignKey(Implementation, models.CASCADE, related_name="+")
    measurement = models.ForeignKey(Measurement, models.PROTECT, related_name="+")
    label = models.CharField(max_length=200)
    artifact_sha256 = models.CharField(max_length=64)
    needs = models.CharField(max_length=500, blank=True)
    measured_at = models.DateTimeField()
    rank = models.PositiveIntegerField(default=0)  # 0 is the winner among all routes
    equal = models.BooleanField(default=False, db_default=False)  # to the winner, as the race could tell
    # Of the whole place, the same in all its rows: whoever explores writes them (catalog.best.stages).
    stage = models.CharField(
        max_length=10, choices=AnswerStage, default=AnswerStage.FIRST, db_default=AnswerStage.FIRST
    )
    final = models.BooleanField(default=True, db_default=True)  # nothing more is planned there just now
    is_default = models.BooleanField(default=False, db_default=False)  # what a user has without us
    published_at = models.DateTimeField(auto_now=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["operator", "target", "setting", "scope", "route"], name="one_best_per_route"
            )
        ]
        indexes = [
            models.Index(fields=["rank", "-ratio_to_default", "-operator"], name="winners_by_speedup"),
            models.Index(fields=["rank", "median_us", "-operator"], name="winners_by_time"),
            models.Index(fields=["method", "rank", "operator", "scope"], name="winners_by_method"),
            models.Index(fields=["published_at"], name="bests_by_publishing"),
        ]

    def __str__(self) -> str:
        return f"{self.route} {self.median_us:.1f} µs"


class BestChange(ScopedKey):
    """History: who became the winner, whom it replaced, and why."""

    before = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")
    after = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="+")
    reason = models.CharField(max_length=300)
    created_at = models.DateTimeField(auto_now_add=True)
