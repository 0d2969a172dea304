"""Synthetic implementations, so that a bench can ask a large catalogue. Nothing here was measured.

They go into a database of their own. Every row says what it is: label and route begin with ``synthetic``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from django.db import connection, transaction
from numpy.typing import NDArray

from bench.seed.bulk import insert, number_on
from catalog import models
from catalog.registry import register_environment, register_operators
from opatlas import identity
from opatlas.load import Manifest

NAME = "synthetic"
LABEL = f"{NAME}, not measured"
ROUTES = ("synthetic-a", "synthetic-b", "synthetic-c", "synthetic-d")
_BATCH = 20_000
_MEASURED_AT = "2026-01-01 00:00:00"
INVENTED = {
    "label": LABEL,
    "candidate": json.dumps({NAME: True}),
    "candidate_sha256": "0" * 64,
    "schedule": "",
    "source": "// synthetic: nothing was compiled",
    "build_s": 0.0,
}
"""Columns of every implementation."""


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
    random = np.random.default_rng(count)
    place = {"target_id": target.pk, "setting_id": setting.pk, "scope": models.SHARED}
    made_by, environment = artifact(setting), register_environment({NAME: "0"})
    real = [row.pk for row in register_operators({item.key: item for item in operators}).values()]
    for done in range(0, count, _BATCH):
        size = min(_BATCH, count - done)
        wanted = -(-size // len(ROUTES))
        with transaction.atomic():
            first, real = real[:wanted], real[wanted:]
            owners = [*first, *_invent_operators(done, wanted - len(first))]
            _add(np.repeat(owners, len(ROUTES))[:size], place, random, made_by, environment)
        yield done + size
    number_on((models.Operator, models.Implementation, models.Measurement, models.Best))


def artifact(setting: models.Setting) -> models.Artifact:
    """What every invented implementation has."""
    manifest = Manifest(
        kind="recipe", route=NAME, operator={}, setting=setting.description, recipe={"library": NAME}
    )
    row, _ = models.Artifact.objects.get_or_create(
        sha256=manifest.sha256, defaults={"kind": "recipe", "manifest": manifest.to_json()}
    )
    return row


def evidence(
    median_us: NDArray[np.float64], ratio: NDArray[np.float64], random: np.random.Generator
) -> dict[str, NDArray[np.float64]]:
    """The columns of :data:`opatlas.evidence.TIMES`."""
    wide = random.uniform(0.01, 0.06, len(ratio))
    return {
        "median_us": median_us.round(3),
        "spread_us": (median_us * wide / 2).round(3),
        "default_us": (median_us * ratio).round(3),
        "ratio_to_default": ratio.round(4),
        "ratio_low": (ratio * (1 - wide)).round(4),
        "ratio_high": (ratio * (1 + wide)).round(4),
    }


def _invent_operators(start: int, count: int) -> range:
    """Rows of operators that cannot be asked for: their keys are digests of a number."""
    names = [f"{NAME} {start + number}" for number in range(count)]
    if not names:
        return range(0)
    return insert(
        models.Operator,
        {
            "key": [f"o1:{hashlib.sha256(name.encode()).hexdigest()}" for name in names],
            "graph": [json.dumps({NAME: start + number}) for number in range(count)],
            "summary": names,
            "op_type": "Synthetic",
            "dtype": "float32",
            "flops": 0.0,
            "bytes_moved": 0.0,
            "created_at": _MEASURED_AT,
        },
    )


def _add(
    owners: NDArray[np.int64],
    place: dict[str, Any],
    random: np.random.Generator,
    made_by: models.Artifact,
    environment: models.Environment,
) -> None:
    ranks = np.arange(len(owners)) % len(ROUTES)
    shared = {
        **place,
        "operator_id": owners,
        "route": [ROUTES[rank] for rank in ranks.tolist()],
        "method": models.Method.LIBRARY.value,
    }
    implementations = insert(
        models.Implementation,
        {
            **shared,
            **INVENTED,
            "artifact_id": made_by.pk,
            "environment_id": environment.pk,
            "created_at": _MEASURED_AT,
        },
    )
    ratios = random.uniform(2.0, 2.2, len(owners)) - 0.25 * ranks
    times = evidence(random.lognormal(4, 1, len(owners)), ratios, random)
    measurements = insert(
        models.Measurement,
        {
            "implementation_id": implementations,
            **times,
            "samples_us": "[]",
            "tier": "",
            "purpose": NAME,
            "created_at": _MEASURED_AT,
        },
    )
    insert(
        models.Best,
        {
            **shared,
            **times,
            "rank": ranks,
            "equal": False,
            "implementation_id": implementations,
            "measurement_id": measurements,
            "label": LABEL,
            "kind": "recipe",
            "artifact_sha256": made_by.sha256,
            "needs": "",
            "measured_at": _MEASURED_AT,
            "published_at": _MEASURED_AT,
        },
    )


def analyse() -> None:
    """Let the database count its rows, as it would have by itself in a catalogue that grew slowly."""
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
