"""What was measured on a bare machine, brought into the catalogue: times with their environment, artifacts
signed here."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from django.db import DatabaseError, transaction

from catalog.best.publishing import Publication, publish, publish_race
from catalog.errors import StoreError
from catalog.models import Purpose
from catalog.registry import register_environment, register_operator, register_setting, register_target
from catalog.steps import told
from opatlas.errors import MALFORMED, OpatlasError
from opatlas.evidence import Evidence
from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.bare.measuring import FORMAT
from tuning.environments.known import declared_for
from tuning.explore.signing import signing_key

# Whatever a line has in place of what it should: nothing of it is checked before it is taken apart.
_NOT_READ = (OpatlasError, StoreError, DatabaseError, *MALFORMED)
_EVIDENCE = frozenset(field.name for field in fields(Evidence))


@dataclass
class Imported:
    """How many of what."""

    lines: int = 0
    published: int = 0
    uncovered: int = 0
    unpublished: int = 0  # without an artifact, or not ok
    refused: list[str] = field(default_factory=list)


def import_measurements(lines: Iterable[Mapping[str, Any]]) -> Imported:
    """Publish every entry that was timed and whose artifact came along; the default first. Bests move by the
    rules for any evidence, the environment of a route's first line being the declared one where there is
    none. What cannot be read is named and left out."""
    done = Imported()
    for number, line in enumerate(lines, 1):
        done.lines += 1
        if line.get("format") != FORMAT:
            done.refused.append(f"line {number} is not of {FORMAT}")
            continue
        if line.get("rehearsed"):
            done.refused.append(f"line {number} was rehearsed on a simulated device: no real one did that")
            continue
        if "uncovered" in line:
            done.uncovered += 1
            continue
        try:
            with transaction.atomic():
                _import(line, done)
        except _NOT_READ as error:
            done.refused.append(f"line {number}: {told(error)}")
    return done


def _import(line: Mapping[str, Any], done: Imported) -> None:
    """One line: those of its final as one race, which its fastest won if it is beyond doubt faster than the
    default; the others as evidence."""
    operator = register_operator(Operator.from_json(line["operator"]))
    target = register_target(Target.from_json(line["target"]))
    setting = register_setting(Setting.from_json(line["setting"]))
    where = {"operator": operator, "target": target, "setting": setting}
    final: list[Publication] = []
    with ExitStack() as stack:
        for number, entry in enumerate(line["entries"]):
            if entry["status"] != "ok" or "manifest" not in entry:
                done.unpublished += 1
                continue
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="opatlas-import-")))
            new = _publication(where, line["default"], entry, folder, is_default=number == 0)
            done.published += 1
            if new.may_lead and (number == 0 or entry["facts"].get("final")):
                final.append(new)
            else:
                publish(replace(new, may_win=False))
        if final:
            order = sorted(final, key=lambda one: -one.evidence.ratio_to_default)
            default = [one for one in final if one.purpose == Purpose.DEFAULT]
            # Within noise of the default nothing is gained by serving something else.
            ahead = [one for one in order if one.evidence.ratio_low > 1.0]
            publish_race(order, winner=(ahead or default or order)[0])


def _publication(
    where: Mapping[str, Any],
    default: Mapping[str, Any],
    entry: Mapping[str, Any],
    folder: Path,
    is_default: bool,
) -> Publication:
    for name, content in entry["files"].items():
        (folder / Path(name).name).write_bytes(base64.b64decode(content))
    evidence = {name: value for name, value in entry["evidence"].items() if name in _EVIDENCE}
    samples_us = tuple(evidence.pop("samples_us", ()))
    brought = {one["route"]: register_environment(one["versions"]) for one in (default, entry)}
    target = where["target"]
    counts = all(declared_for(target.pk, route, mine).pk == mine.pk for route, mine in brought.items())
    return Publication(
        **where,
        route=entry["route"],
        method=entry["method"],
        label=entry["label"],
        candidate=entry["candidate"],
        manifest=Manifest.from_json(entry["manifest"]),
        folder=folder,
        versions=entry["versions"],
        evidence=Evidence(**evidence, samples_us=samples_us),
        schedule=entry["schedule"],
        source=entry["source"],
        purpose=Purpose.DEFAULT if is_default else Purpose.CONTEST,
        may_lead=counts,
        default_route=default["route"],
        default_versions=default["versions"],
        signing_key=signing_key(),
    )
