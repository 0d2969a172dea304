"""Synthetic implementations, so that a bench can ask a large catalogue. Nothing here was measured.

They go into a database of their own. Every row says what it is: label and route begin with ``synthetic``.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from django.db import connection, transaction

from catalog import models
from catalog.needs import needs_text
from catalog.services.registry import register_environment, register_operators
from opatlas import identity
from opatlas.load import Manifest

NAME = "synthetic"
ROUTES = ("synthetic-a", "synthetic-b", "synthetic-c", "synthetic-d")
_BATCH = 2_000
_MEASURED_AT = datetime(2026, 1, 1, tzinfo=UTC)


class NotEmpty(Exception):
    """The database has results that were measured: synthetic ones would stand beside them."""


def seed(
    count: int, operators: Sequence[identity.Operator], target: models.Target, setting: models.Setting
) -> Iterator[int]:
    """Make ``count`` implementations with their evidence and bests, four routes to an operator.

    ``operators`` come first (each with every route); the rest are invented. Yields how many there are, batch
    by batch; each batch is a transaction.
    """
    if models.Implementation.objects.exclude(route__startswith=NAME).exists():
        raise NotEmpty("This database holds measured results: seed one of its own.")
    numbers = random.Random(count)
    environment = register_environment({NAME: "0"})
    artifact = _artifact(setting)
    real = [row.pk for row in register_operators({item.key: item for item in operators}).values()]
    done = 0
    while done < count:
        size = min(_BATCH, count - done)
        with transaction.atomic():
            first, real = real[: -(-size // len(ROUTES))], real[-(-size // len(ROUTES)) :]
            invented = -(-size // len(ROUTES)) - len(first)
            owners = [*first, *_invent_operators(done, invented)]
            pairs = [(owner, route) for owner in owners for route in ROUTES][:size]
            _add(pairs, numbers, target, setting, artifact, environment)
        done += size
        yield done


def _artifact(setting: models.Setting) -> models.Artifact:
    manifest = Manifest(
        kind="recipe", route=NAME, operator={}, setting=setting.description, recipe={"library": NAME}
    )
    row, _ = models.Artifact.objects.get_or_create(
        sha256=manifest.sha256, defaults={"kind": "recipe", "manifest": manifest.to_json()}
    )
    return row


def _invent_operators(start: int, count: int) -> list[int]:
    """Rows of operators that cannot be asked for: their keys are digests of a number."""
    rows = [
        models.Operator(
            key=f"o1:{hashlib.sha256(f'{NAME} {start + number}'.encode()).hexdigest()}",
            graph={NAME: start + number},
            op_type="Synthetic",
            summary=f"{NAME} {start + number}",
            dtype="float32",
        )
        for number in range(count)
    ]
    return [row.pk for row in models.Operator.objects.bulk_create(rows, batch_size=_BATCH)]


def _add(
    pairs: Sequence[tuple[int, str]],
    numbers: random.Random,
    target: models.Target,
    setting: models.Setting,
    artifact: models.Artifact,
    environment: models.Environment,
) -> None:
    place = {"target": target, "setting": setting}
    shared = {"method": models.Method.LIBRARY, "label": f"{NAME}, not measured"}
    implementations = models.Implementation.objects.bulk_create(
        models.Implementation(
            operator_id=operator,
            **place,
            **shared,
            route=route,
            candidate={NAME: True},
            candidate_sha256="0" * 64,
            artifact=artifact,
            environment=environment,
        )
        for operator, route in pairs
    )
    evidence = [_evidence(numbers, ROUTES.index(route)) for _, route in pairs]
    measurements = models.Measurement.objects.bulk_create(
        models.Measurement(implementation=row, tier="", purpose=NAME, **times)
        for row, times in zip(implementations, evidence, strict=True)
    )
    models.Best.objects.bulk_create(
        models.Best(
            operator_id=row.operator_id,
            **place,
            **shared,
            route=row.route,
            kind="recipe",
            implementation=row,
            measurement=measurement,
            artifact_sha256=artifact.sha256,
            needs=needs_text({}),
            rank=ROUTES.index(row.route),
            measured_at=_MEASURED_AT,
            **times,
        )
        for row, measurement, times in zip(implementations, measurements, evidence, strict=True)
    )


def _evidence(numbers: random.Random, rank: int) -> dict[str, float]:
    median_us = round(numbers.lognormvariate(4, 1), 3)
    ratio = round(numbers.uniform(2.0, 2.2) - 0.25 * rank, 4)
    return {
        "median_us": median_us,
        "spread_us": round(median_us / 50, 3),
        "default_us": round(median_us * ratio, 3),
        "ratio_to_default": ratio,
        "ratio_low": round(ratio * 0.98, 4),
        "ratio_high": round(ratio * 1.02, 4),
    }


def analyse() -> None:
    """Let the database count its rows, as it would have by itself in a catalogue that grew slowly."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
