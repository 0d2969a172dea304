"""Rows about running the service: chores, retention, releases, sizes."""

from __future__ import annotations

from django.db import models

from catalog.models import Target


class ChoreRun(models.Model):
    """One chore. Counters only grow; times are those of the latest recorded runs."""

    name = models.CharField(max_length=100, unique=True)
    runs = models.PositiveBigIntegerField(default=0)
    failures = models.PositiveBigIntegerField(default=0)
    last_run_at = models.DateTimeField()
    last_success_at = models.DateTimeField(null=True)
    last_took_s = models.FloatField(default=0)
    last_error = models.CharField(max_length=300, blank=True)

    def __str__(self) -> str:
        return self.name


class RetentionMark(models.Model):
    """How far a large table was scanned for expired rows (``dashboard.operation.retention``)."""

    name = models.CharField(max_length=50, unique=True)
    position = models.BigIntegerField(default=0)  # the last row's number

    def __str__(self) -> str:
        return f"{self.name}: {self.position}"


class Release(models.Model):
    """A change of versions: of the service (no target), or of the workers' libraries for one target on one
    host. The first row of each has the initial ones."""

    at = models.DateTimeField()
    host = models.CharField(max_length=200, blank=True)
    target = models.ForeignKey(Target, models.CASCADE, null=True, related_name="+")
    versions = models.JSONField(default=dict)  # name → version, of all that was ever there
    said = models.CharField(max_length=300, blank=True)  # what became what; empty: nothing did yet

    class Meta:
        indexes = [models.Index(fields=["at"], name="releases_by_time")]

    def __str__(self) -> str:
        return self.said


class SizeSample(models.Model):
    """The size of one table or folder at one moment, and its disk's free space."""

    at = models.DateTimeField()  # the same of all that were measured together
    name = models.CharField(max_length=100)
    rows = models.BigIntegerField(null=True)  # as the database estimates it; null where nobody does
    bytes = models.BigIntegerField()
    disk = models.CharField(max_length=300, blank=True)  # where it is mounted; "": on another machine
    free_bytes = models.BigIntegerField(null=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["at", "name"], name="one_size_at_a_time")]

    def __str__(self) -> str:
        return f"{self.name} at {self.at:%Y-%m-%d %H:%M}: {self.bytes} B"
