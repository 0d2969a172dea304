"""What an approver is shown of device code: what it takes of the device, and its PTX. Pure.

Nothing of its author's runs on the host, so there are no system calls to watch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tuning.measure.machine_code import MOST_TEXT, NOTABLE
from tuning.measure.observing.occupancy import least_occupancy
from tuning.routes.base import BuiltArtifact

_CALLED = re.compile(r"^\.extern \.func .*?(\w+)\s*$", re.MULTILINE)
_SPECIAL = re.compile(r"%[a-z]\w*")
_ENTRY = re.compile(r"^\.visible \.entry ", re.MULTILINE)
_DATA = re.compile(r"^\.(?:visible |weak )?\.?(?:global|const)\b.*?\[(\d+)\]", re.MULTILINE)


def looked_at(artifact: BuiltArtifact) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Observed, code and text, as :class:`tuning.measure.observing.inspecting.Inspection` has them."""
    ptx = artifact.schedule
    used: Mapping[str, Any] = artifact.facts.get("functions", {})
    special = Counter(name for name in _SPECIAL.findall(ptx) if name in NOTABLE)
    code = {
        "imports": sorted(set(_CALLED.findall(ptx))),
        "notable": dict(special),
        "functions": len(_ENTRY.findall(ptx)),
        "instructions": ptx.count(";\n"),
        "data_bytes": sum(map(int, _DATA.findall(ptx))),
    }
    plan = artifact.manifest.launch or {}
    shown = {name: {**one, **_filling(plan, name, one)} for name, one in used.items()}
    return {"device": shown}, code, ptx[:MOST_TEXT]


def _filling(plan: Mapping[str, Any], function: str, used: Mapping[str, int]) -> dict[str, int]:
    """Its occupancy at most, in percent, where that can be told."""
    share = least_occupancy(plan, function, used) if plan else None
    return {} if share is None else {"occupancy_percent": round(100 * share)}
