"""Building an artifact again from its provenance, and comparing bit for bit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opatlas.identity import Operator, Setting
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Outcome
from tuning.measure.provenance import builder, candidate_digest
from tuning.routes.base import Candidate, No, Route


@dataclass(frozen=True)
class Recorded:
    """What was built, from its rows and its manifest."""

    operator: Operator
    setting: Setting
    candidate: Candidate
    files: Mapping[str, str]  # name → SHA-256
    provenance: Mapping[str, Any] | None


@dataclass(frozen=True)
class Repeated:
    """The result, and one sentence."""

    verdict: Literal["same", "differs", "cannot be repeated here"]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}" if self.detail else self.verdict


def repeat(laboratory: Laboratory, routes: Sequence[Route], recorded: Recorded, folder: Path) -> Repeated:
    """Build it once more in ``folder``, in the sandbox, and compare every file."""
    route = next((route for route in routes if route.name == recorded.candidate.route), None)
    if why_not := _why_not(laboratory, route, recorded):
        return Repeated("cannot be repeated here", why_not)
    assert route is not None
    folder.mkdir(parents=True, exist_ok=True)
    built = laboratory.build(route, recorded.operator, recorded.setting, recorded.candidate, folder)
    if isinstance(built, Outcome):
        return Repeated("cannot be repeated here", f"it does not build: {built.detail}")
    found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in built.manifest.files}
    differing = sorted(
        name for name in {*found, *recorded.files} if found.get(name) != recorded.files.get(name)
    )
    if not differing:
        return Repeated("same", f"{', '.join(sorted(found))} bit for bit")
    return Repeated("differs", f"in {', '.join(differing)}{_elsewhere(recorded)}")


def _why_not(laboratory: Laboratory, route: Route | None, recorded: Recorded) -> str:
    told = recorded.provenance
    if told is None:
        return "its manifest does not say how it was built (a recipe, or an artifact of before provenance)"
    if route is None:
        return f"there is no route {recorded.candidate.route} any more"
    if isinstance(answer := route.available(laboratory.target), No):
        return f"route {route.name} is not available: {answer.reason}"
    made = recorded.candidate
    if candidate_digest(made.route, made.parameters) != told.get("candidate_sha256"):
        return "what is kept of its candidate is not what it was built from"
    if dict(route.versions()) != dict(told.get("versions", {})):
        return (
            f"it was built with {_versions(told.get('versions', {}))}, here is {_versions(route.versions())}"
        )
    if told.get("builder", {}).get("machine") != builder()["machine"]:
        return f"it was built on {told.get('builder', {}).get('machine')}, this is {builder()['machine']}"
    return ""


def _elsewhere(recorded: Recorded) -> str:
    """Other differences on this machine: a linker or a C library may explain a mismatch."""
    before = dict((recorded.provenance or {}).get("builder", {}))
    other = [
        f"{name} was {before.get(name)}, is {now}"
        for name, now in builder().items()
        if before.get(name) != now
    ]
    return f" ({'; '.join(other)})" if other else " (compiler and builder are the same: it does not repeat)"


def _versions(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) or "nothing known"
