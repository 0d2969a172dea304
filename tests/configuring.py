"""Another configuration for a while, without touching the environment."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from importlib.util import find_spec
from typing import Any

import opatlas.conf

KINDS: tuple[type, ...] = tuple(
    getattr(importlib.import_module(f"{package}.conf"), f"{package.capitalize()}Conf")
    for package in ("opatlas", "catalog", "tuning", "dashboard")
    if find_spec(package)  # a bare machine (tuning/bare) has no service
)


@contextmanager
def configured(**values: Any) -> Iterator[None]:
    """``with configured(lease_s=2.0, home=folder):`` this process is configured so, whichever package
    reads it."""
    changed: dict[type, Any] = {}
    for kind in KINDS:
        own = {one.name: values.pop(one.name) for one in fields(kind) if one.name in values}
        if own:
            changed[kind] = replace(opatlas.conf.process(kind), **own)
    assert not values, f"no package can be configured by {sorted(values)}"
    kept = {kind: opatlas.conf._process[kind] for kind in changed}
    opatlas.conf._process.update(changed)
    try:
        yield
    finally:
        opatlas.conf._process.update(kept)
