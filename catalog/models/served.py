"""What was served: hits one by one, hourly tallies, and how far the journal was drained."""

from __future__ import annotations

from django.db import models

from catalog.models.accounts import Organisation
from catalog.models.asked import Job
from catalog.models.known import Implementation, Method, Operator


class Usage(models.Model):
    """One record per hit served; of a client's report one per implementation, with how many ``lookups`` its
    caches answered so. The journal's position makes draining it twice harmless.

    On PostgreSQL a table of months by ``served_at``, the journal line's own time
    (``catalog.usage.partitions``): nothing may refer to it, and that time is part of what is unique."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="usage")
    job = models.ForeignKey(Job, models.SET_NULL, null=True, related_name="usage")
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="usage")
    implementation = models.ForeignKey(Implementation, models.SET_NULL, null=True, related_name="usage")
    method = models.CharField(max_length=20, choices=Method)
    route = models.CharField(max_length=40)
    median_us = models.FloatField()
    default_us = models.FloatField()
    calls = models.FloatField(default=1)
    lookups = models.PositiveBigIntegerField(default=1, db_default=1)
    # The default itself was served: no gain. Rows from before this was noted say no.
    is_default = models.BooleanField(default=False, db_default=False)
    # Measured on another target than the job's: then ``median_us`` is the default's, since no gain is known.
    from_neighbour = models.BooleanField(default=False, db_default=False)
    served_at = models.DateTimeField(db_index=True)
    node = models.CharField(max_length=60)
    segment = models.CharField(max_length=60)
    offset = models.BigIntegerField()
    item = models.PositiveIntegerField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["node", "segment", "offset", "item", "served_at"], name="one_usage_per_journal_item"
            )
        ]


class ClosedUsage(models.Model):
    """One row: the months before ``before`` are closed (``catalog.usage.closing``). Their Usage rows go, the
    sums over them stay as they are; of tallies before ``by_day_before`` each stands for a whole day."""

    before = models.DateTimeField()
    closed_at = models.DateTimeField()  # the latest of them
    by_day_before = models.DateTimeField(null=True)


class KeptAnswer(models.Model):
    """What a charged lookup was answered, for the same request sent again; written with its charges."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    key = models.CharField(max_length=255)  # the request's Idempotency-Key
    request_sha256 = models.CharField(max_length=64)
    answer = models.JSONField()
    at = models.DateTimeField(db_index=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "key"], name="one_answer_per_idempotency_key")
        ]


class LookupTally(models.Model):
    """Hits and misses per operator and hour, counted from the journal: what hit rates are made of. Of closed
    months (:class:`ClosedUsage`) per day, in the row of its first hour."""

    hour = models.DateTimeField()
    operator = models.ForeignKey(Operator, models.CASCADE, related_name="tallies")
    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="+")
    hits = models.PositiveBigIntegerField(default=0)  # lookups, those that clients' caches answered included
    default_hits = models.PositiveBigIntegerField(default=0, db_default=0)  # of the hits: served the default
    neighbour_hits = models.PositiveBigIntegerField(default=0, db_default=0)  # measured on another target
    misses = models.PositiveBigIntegerField(default=0)
    hit_calls = models.FloatField(default=0)
    miss_calls = models.FloatField(default=0)
    saved_us = models.FloatField(default=0, db_default=0)  # of hits: calls × (default - served)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["hour", "operator", "organisation"], name="one_tally_per_hour")
        ]
        indexes = [models.Index(fields=["operator", "hour"], name="tallies_of_operator")]


class JournalSegment(models.Model):
    """How far a node's journal segment was drained, and which reports of clients were counted (theirs are
    closed from the beginning). Closed ones are forgotten after a while (``catalog.usage.draining``)."""

    node = models.CharField(max_length=60)
    segment = models.CharField(max_length=60)
    drained_bytes = models.BigIntegerField(default=0)
    closed = models.BooleanField(default=False)
    closed_at = models.DateTimeField(null=True, db_index=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "segment"], name="one_row_per_segment")]
