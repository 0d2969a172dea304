"""Steps that fail again and again, and the rows that they had to leave aside (``catalog.steps``)."""

from __future__ import annotations

from django.db import models


class StepFailure(models.Model):
    """A step of periodic work failed when it was last done: as a whole (``row`` is 0), or at one row. Gone
    once it works again."""

    step = models.CharField(max_length=100)
    row = models.BigIntegerField(default=0, db_default=0)  # its number in its own table
    said = models.CharField(max_length=300)  # what it failed with; for who runs the service
    failures = models.PositiveIntegerField(default=1, db_default=1)  # in a row
    first_at = models.DateTimeField()
    last_at = models.DateTimeField()
    due_at = models.DateTimeField(null=True)  # of a row: when it is tried again; null: never by itself

    class Meta:
        constraints = [models.UniqueConstraint(fields=["step", "row"], name="one_failure_per_step_and_row")]

    def __str__(self) -> str:
        return f"{self.step}, row {self.row}: {self.said}" if self.row else f"{self.step}: {self.said}"
