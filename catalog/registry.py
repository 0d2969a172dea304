"""Rows for keys: operators, targets, settings, environments, and the default tenant."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from catalog import models
from opatlas import identity
from opatlas.errors import MALFORMED
from opatlas.identity.operator import canonical_json

DEFAULT_ORGANISATION = "default"


def default_organisation() -> models.Organisation:
    """The tenant of a service without tenants: the host, under its present name."""
    host = models.Organisation.objects.filter(host=True).order_by("pk").first()
    if host is not None:
        return host
    return models.Organisation.objects.get_or_create(name=DEFAULT_ORGANISATION, defaults={"host": True})[0]


def operator_fields(operator: identity.Operator) -> dict[str, object]:
    """A row's columns for an operator, beside its key."""
    described, values = identity.describe(operator), (*operator.inputs, *operator.output_values)
    return {
        "graph": operator.to_json(),
        "op_type": described.op_type[:100],
        "summary": described.summary[:300],
        "dtype": described.dtype[:20],
        "flops": described.flops,
        "bytes_moved": described.bytes_moved,
        "largest_dim": max((size for value in values for size in value.shape), default=0),
    }


def read_graph(graph: Any) -> identity.Operator | None:
    """A row's graph; None for one that cannot be read, such as another version's: loops over many operators
    skip it."""
    try:
        return identity.Operator.from_json(graph)
    except MALFORMED:
        return None


def register_operator(operator: identity.Operator) -> models.Operator:
    """The operator's row, made on its first sight."""
    row, _ = models.Operator.objects.get_or_create(key=operator.key, defaults=operator_fields(operator))
    return row


def register_operators(operators: Mapping[str, identity.Operator]) -> dict[str, models.Operator]:
    """Rows of many operators (by key) in two or three statements."""
    rows = models.Operator.objects.in_bulk(list(operators), field_name="key")
    new = [
        models.Operator(key=key, **operator_fields(operator))
        for key, operator in sorted(operators.items())
        if key not in rows
    ]
    if new:
        # Another request may register the same operator right now: its row is as good as ours.
        models.Operator.objects.bulk_create(new, ignore_conflicts=True)
        rows |= models.Operator.objects.in_bulk([row.key for row in new], field_name="key")
    return rows


def register_target(target: identity.Target) -> models.Target:
    row, _ = models.Target.objects.get_or_create(
        key=target.key,
        defaults={
            "kind": target.kind[:20],
            "arch": target.arch[:50],
            "capability": target.capability[:80],
            "description": target.to_json(),
        },
    )
    return row


def register_setting(setting: identity.Setting) -> models.Setting:
    row, _ = models.Setting.objects.get_or_create(
        key=setting.key,
        defaults={"threads": setting.threads, "cache": setting.cache, "description": setting.to_json()},
    )
    return row


def digest_of(document: Mapping[str, Any]) -> str:
    """The name of an environment by its versions, and of a candidate by its parameters."""
    return hashlib.sha256(canonical_json(dict(document))).hexdigest()


def register_environment(versions: Mapping[str, str]) -> models.Environment:
    row, _ = models.Environment.objects.get_or_create(
        digest=digest_of(versions), defaults={"versions": dict(versions)}
    )
    return row
