"""What processes must not remember any longer."""

from __future__ import annotations

from django.db import models


class Recall(models.Model):
    """Says that what a process remembers of one thing may be wrong by now.

    The database's own triggers write them (migration 0019), in the transaction that changes a best, a key or
    what answers quote, so that nobody who changes one can forget to. Web processes look several times a
    second (``catalog.lookup.recalls``); old rows go (the courier's chore).
    """

    OPERATOR, KEY, ALL = "operator", "key", "all"

    kind = models.CharField(max_length=10)  # operator: its bests; key: an API key's rights; all: everything
    number = models.BigIntegerField(default=0)  # the operator's or the key's id
    # At random: tells this row from one of the same id in another history of the database (a backup).
    mark = models.BigIntegerField(default=0)
    xid = models.BigIntegerField(default=0, db_index=True)  # PostgreSQL's transaction that wrote it

    def __str__(self) -> str:
        return f"{self.kind} {self.number}"
