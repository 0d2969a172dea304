"""Synthetic implementations, so that a bench can ask a large catalogue. Nothing here was measured.

They go into a database of their own. Every row says what it is: label and route begin with ``synthetic``.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from django.core.management.color import no_style
from django.db import connection, transaction
from django.db import models as db

from catalog import models
from catalog.registry import register_environment, register_operators
from opatlas import identity
from opatlas.load import Manifest

NAME = "synthetic"
ROUTES = ("synthetic-a", "synthetic-b", "synthetic-c", "synthetic-d")
_BATCH = 20_000
_MEASURED_AT = datetime(2026, 1, 1, tzinfo=UTC)
_FILLED = (models.Operator, models.Implementation, models.Measurement, models.Best)


class NotEmpty(Exception):
    """The database has results that were measured: synthetic ones would stand beside them."""


def seed(
    count: int, operators: Sequence[identity.Operator], target: models.Target, setting: models.Setting
) -> Iterator[int]:
    """Make ``count`` implementations with their evidence and bests, four routes to an operator.

    ``operators`` come first (each with every route); the rest are invented. Yields how many there are, batch
    by batch; each batch is a transaction. Nobody else may write meanwhile: rows are numbered here.
    """
    if models.Implementation.objects.exclude(route__startswith=NAME).exists():
        raise NotEmpty("This database holds measured results: seed one of its own.")
    numbers = random.Random(count)
    shared = {
        "target_id": target.pk,
        "setting_id": setting.pk,
        "scope": models.SHARED,
        "method": models.Method.LIBRARY.value,
        "label": f"{NAME}, not measured",
    }
    artifact, environment = _artifact(setting), register_environment({NAME: "0"})
    real = [row.pk for row in register_operators({item.key: item for item in operators}).values()]
    done = 0
    while done < count:
        size = min(_BATCH, count - done)
        wanted = -(-size // len(ROUTES))
        with transaction.atomic():
            first, real = real[:wanted], real[wanted:]
            owners = [*first, *_invent_operators(done, wanted - len(first))]
            pairs = [(owner, route) for owner in owners for route in ROUTES][:size]
            _add(pairs, numbers, shared, artifact, environment)
        done += size
        yield done
    _number_on()


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
    return _insert(
        models.Operator,
        [
            {
                "key": f"o1:{hashlib.sha256(f'{NAME} {start + number}'.encode()).hexdigest()}",
                "graph": json.dumps({NAME: start + number}),
                "op_type": "Synthetic",
                "summary": f"{NAME} {start + number}",
                "dtype": "float32",
                "flops": 0.0,
                "bytes_moved": 0.0,
                "created_at": _MEASURED_AT,
            }
            for number in range(count)
        ],
    )


def _add(
    pairs: Sequence[tuple[int, str]],
    numbers: random.Random,
    shared: Mapping[str, Any],
    artifact: models.Artifact,
    environment: models.Environment,
) -> None:
    made = {
        "candidate": json.dumps({NAME: True}),
        "candidate_sha256": "0" * 64,
        "schedule": "",
        "source": "",
        "artifact_id": artifact.pk,
        "environment_id": environment.pk,
        "build_s": 0.0,
        "created_at": _MEASURED_AT,
    }
    implementations = _insert(
        models.Implementation,
        [{"operator_id": operator, "route": route, **shared, **made} for operator, route in pairs],
    )
    times = [_evidence(numbers, ROUTES.index(route)) for _, route in pairs]
    proof = {"samples_us": "[]", "tier": "", "purpose": NAME, "created_at": _MEASURED_AT}
    measurements = _insert(
        models.Measurement,
        [
            {"implementation_id": number, **evidence, **proof}
            for number, evidence in zip(implementations, times, strict=True)
        ],
    )
    served = {
        "kind": "recipe",
        "artifact_sha256": artifact.sha256,
        "needs": "",
        "measured_at": _MEASURED_AT,
        "published_at": _MEASURED_AT,
    }
    _insert(
        models.Best,
        [
            {
                "operator_id": operator,
                "route": route,
                "rank": ROUTES.index(route),
                "implementation_id": implementation,
                "measurement_id": measurement,
                **shared,
                **served,
                **evidence,
            }
            for (operator, route), implementation, measurement, evidence in zip(
                pairs, implementations, measurements, times, strict=True
            )
        ],
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


def _insert(model: type[db.Model], rows: Sequence[Mapping[str, Any]]) -> list[int]:
    """Rows by column, past Django's objects (a million of them take minutes); gives the rows' numbers."""
    if not rows:
        return []
    first = (model._default_manager.aggregate(last=db.Max("pk"))["last"] or 0) + 1
    numbers = list(range(first, first + len(rows)))
    quote = connection.ops.quote_name
    table, columns = quote(model._meta.db_table), ", ".join(quote(name) for name in ("id", *rows[0]))
    with connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
                for number, row in zip(numbers, rows, strict=True):
                    copy.write_row((number, *row.values()))
        else:
            adapted = str(_MEASURED_AT.replace(tzinfo=None))
            places = ", ".join(["%s"] * (len(rows[0]) + 1))
            cursor.executemany(
                f"INSERT INTO {table} ({columns}) VALUES ({places})",
                [
                    (number, *(adapted if value is _MEASURED_AT else value for value in row.values()))
                    for number, row in zip(numbers, rows, strict=True)
                ],
            )
    return numbers


def _number_on() -> None:
    """Let the database's own numbering go on after the numbers given here."""
    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), list(_FILLED)):
            cursor.execute(statement)


def analyse() -> None:
    """Let the database count its rows, as it would have by itself in a catalogue that grew slowly."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
