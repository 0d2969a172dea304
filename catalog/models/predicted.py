"""What comes next: which operators jobs asked for one after the other, and networks that learnt from them."""

from __future__ import annotations

from django.db import models

from catalog.fields import ExactJSONField
from catalog.models.accounts import Organisation
from catalog.models.known import SHARED, Operator


class Succession(models.Model):
    """What jobs of one organisation asked for soon after an operator (catalog.usage.succession). Nobody
    else is ever told of it."""

    organisation = models.ForeignKey(Organisation, models.CASCADE, related_name="successions")
    before = models.ForeignKey(Operator, models.CASCADE, related_name="successors")
    after = models.ForeignKey(Operator, models.CASCADE, related_name="predecessors")
    jobs = models.PositiveIntegerField(default=0)
    weight = models.FloatField(default=0)  # of every job 1 ÷ how many operators later
    last_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["organisation", "before", "after"], name="one_row_per_succession")
        ]
        indexes = [models.Index(fields=["organisation", "last_at"], name="successions_by_age")]


class PredictorNetwork(models.Model):
    """A network that a client may run (``opatlas.client.predict.network``), by the SHA-256 of its file, which
    lies in the artifact store. One that learnt from an organisation's jobs has its scope, and is given to
    nobody else."""

    scope = models.CharField(max_length=30, default=SHARED)
    owner = models.ForeignKey(Organisation, models.CASCADE, null=True, blank=True, related_name="networks")
    version = models.PositiveIntegerField()
    sha256 = models.CharField(max_length=64)
    size_bytes = models.PositiveIntegerField()
    document = ExactJSONField()  # what is signed
    signature = models.CharField(max_length=128)  # Ed25519, hexadecimal
    signer = models.CharField(max_length=64)  # the public key's SHA-256
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["scope", "version"], name="one_network_per_scope_and_version")
        ]

    def __str__(self) -> str:
        return f"{self.scope} {self.version}"
