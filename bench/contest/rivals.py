"""What another contest's catalogue serves, taken out of its home to run in our races.

``RIVAL=/elsewhere/var/bench/contest`` names the home of a run of another version, on this machine: 7fa76a5 or
later. It is only read, and needs not be migrated: what is asked of it has the same names ever since.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from catalog.best.artifacts import PLAIN_NAME
from opatlas.load import Manifest
from tuning.retiming.retiming import CannotBeTimed
from tuning.routes.base import BuiltArtifact

DATABASE = "opatlas.sqlite3"
SERVED = """
SELECT implementation.route, implementation.label, implementation.candidate, artifact.manifest
FROM catalog_best AS best
JOIN catalog_implementation AS implementation ON implementation.id = best.implementation_id
JOIN catalog_artifact AS artifact ON artifact.id = implementation.artifact_id
JOIN catalog_operator AS operator ON operator.id = best.operator_id
JOIN catalog_setting AS setting ON setting.id = best.setting_id
WHERE best.rank = 0 AND best.scope = 'shared' AND operator.key = ? AND setting.key = ?
"""


@dataclass(frozen=True)
class RivalChoice:
    """What it serves for an operator."""

    route: str
    label: str
    candidate: Mapping[str, Any]
    artifact: BuiltArtifact


class Rivals:
    """Another home's choices. Raises FileNotFoundError where there is none."""

    def __init__(self, home: Path) -> None:
        self.home = home
        if not (home / DATABASE).is_file():
            raise FileNotFoundError(f"{home} is no home: it has no {DATABASE}.")

    def choice(self, operator: str, setting: str, folder: Path) -> RivalChoice | None:
        """By the operator's and the setting's keys, its files copied into ``folder``; None where it serves
        nothing. Raises CannotBeTimed where a file is not what its name says."""
        with closing(sqlite3.connect(f"file:{self.home / DATABASE}?mode=ro", uri=True)) as old:
            row = old.execute(SERVED, (operator, setting)).fetchone()
        if row is None:
            return None
        route, label, candidate, manifest = row
        made = Manifest.from_json(json.loads(manifest))
        for name, sha256 in made.files.items():
            self._copy(name, sha256, folder)
        return RivalChoice(route, label, json.loads(candidate), BuiltArtifact(made, folder))

    def _copy(self, name: str, sha256: str, folder: Path) -> None:
        source = self.home / "artifacts" / sha256[:2] / sha256[2:4] / sha256
        found = hashlib.sha256(source.read_bytes()).hexdigest() if source.is_file() else "nothing"
        if found != sha256 or not PLAIN_NAME.fullmatch(name):
            raise CannotBeTimed(f"{source} is not what the rival's catalogue says.")
        shutil.copy(source, folder / name)
