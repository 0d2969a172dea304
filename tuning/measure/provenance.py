"""How an artifact came to be: enough to build it again and to compare bit for bit."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from opatlas.identity import Target
from opatlas.identity.operator import canonical_json
from tuning.routes.base import BuiltArtifact, Candidate, Route


def with_provenance(
    artifact: BuiltArtifact, route: Route, candidate: Candidate, target: Target, tier: str
) -> BuiltArtifact:
    """The artifact with how it was built, and for what, in its manifest. A recipe is a call that its manifest
    holds whole: nothing was built, so it says nothing."""
    if artifact.manifest.kind == "recipe":
        return artifact
    told = {
        "source_sha256": hashlib.sha256(artifact.source.encode("utf-8", "surrogatepass")).hexdigest(),
        "candidate_sha256": candidate_digest(candidate.route, candidate.parameters),
        "who": _who(candidate),
        "target": target.to_json(),
        "versions": dict(route.versions()),
        "flags": list(artifact.facts.get("flags", ())),
        "builder": {**builder(), "tier": tier},
        "built_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    return replace(artifact, manifest=replace(artifact.manifest, provenance=told))


def candidate_digest(route: str, parameters: Mapping[str, Any]) -> str:
    """SHA-256 of all that a route needs to build a candidate again: what tells two of them apart."""
    return hashlib.sha256(canonical_json([route, dict(parameters)])).hexdigest()


@cache
def builder() -> Mapping[str, str]:
    """The distribution, C library and machine of this worker."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        distribution = "unknown"
    return {
        "distribution": distribution,
        "libc": " ".join(platform.libc_ver()).strip() or "unknown",
        "machine": platform.machine(),
    }


def _who(candidate: Candidate) -> str:
    """A submitted kernel by name, version and number; else the route and its variant."""
    given: Mapping[str, Any] = candidate.parameters
    if "kernel" in given:
        number = f" (version {given['kernel_version']})" if "kernel_version" in given else ""
        return f"{given['kernel']} v{given.get('version', '')}{number}"
    return f"route {candidate.route}: {candidate.label}"
