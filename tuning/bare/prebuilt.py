"""What was built at home for a named architecture, and is only checked and raced on the device.

A folder: one JSON document for each build, named by the digest of all that decides what is built (the route
with its versions and its code, the operator, the setting, the architecture and the candidate), and its files
by their own digests.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.errors import MALFORMED
from opatlas.identity import Operator, Setting, Target
from opatlas.identity.operator import canonical_json
from opatlas.load import Manifest
from tuning.routes.base import BuiltArtifact, Candidate, Route


@dataclass(frozen=True)
class Prebuilt:
    """``taken`` of it is counted by who asks."""

    folder: Path

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def put(
        self,
        route: Route,
        operator: Operator,
        target: Target,
        setting: Setting,
        candidate: Candidate,
        built: BuiltArtifact,
    ) -> int:
        """Keep it; its size in bytes."""
        nbytes = 0
        for name, digest in built.manifest.files.items():
            nbytes += self._write(self.folder / "files" / digest, (Path(built.folder) / name).read_bytes())
        document = {
            "manifest": built.manifest.to_json(),
            "schedule": built.schedule,
            "source": built.source,
            "facts": dict(built.facts),
        }
        path = self._path(route, operator, target, setting, candidate)
        return nbytes + self._write(path, json.dumps(document, sort_keys=True).encode())

    def get(
        self,
        route: Route,
        operator: Operator,
        target: Target,
        setting: Setting,
        candidate: Candidate,
        workdir: Path,
    ) -> BuiltArtifact | None:
        """Laid into ``workdir``; None where it was not built, or is not what was built."""
        path = self._path(route, operator, target, setting, candidate)
        try:
            document = json.loads(path.read_bytes())
            manifest = Manifest.from_json(document["manifest"])
            files = self._files(manifest.files)
            built = BuiltArtifact(
                manifest, workdir, str(document["schedule"]), str(document["source"]), dict(document["facts"])
            )
        except (OSError, *MALFORMED):
            return None
        if files is None or manifest.operator != operator.to_json():
            return None
        workdir.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (workdir / Path(name).name).write_bytes(content)
        return built

    def has(
        self, route: Route, operator: Operator, target: Target, setting: Setting, candidate: Candidate
    ) -> bool:
        return self._path(route, operator, target, setting, candidate).exists()

    def drop_others(self, about: Collection[tuple[Route, Operator, Target, Setting, Candidate]]) -> None:
        """All but these builds, and files of none: nobody takes what a route built before it was changed."""
        kept = {self._path(*one) for one in about}
        files = set()
        for path in self.folder.glob("builds/*.json"):
            if path in kept:
                files |= set(json.loads(path.read_bytes())["manifest"]["files"].values())
            else:
                path.unlink()
        for path in self.folder.glob("files/*"):
            if path.name not in files:
                path.unlink()

    def evidence(self) -> Iterator[Mapping[str, int]]:
        """Of each function of each build, what it takes of a device by what built it: registers of a thread,
        bytes of its stack or spilled, bytes of a block's shared memory."""
        for path in sorted(self.folder.glob("builds/*.json")):
            document = json.loads(path.read_bytes())
            manifest = document["manifest"]
            shared = {one["function"]: one["shared_bytes"] for one in manifest["launch"]["run"]}
            for name, used in document["facts"].get("functions", {}).items():
                known = {key: int(value) for key, value in used.items()}
                known["shared_bytes"] = known.get("shared_bytes", 0) + int(shared.get(name, 0))
                yield known

    def _files(self, named: Mapping[str, str]) -> dict[str, bytes] | None:
        found = {name: (self.folder / "files" / digest).read_bytes() for name, digest in named.items()}
        right = all(hashlib.sha256(found[name]).hexdigest() == digest for name, digest in named.items())
        return found if right else None

    def _path(
        self, route: Route, operator: Operator, target: Target, setting: Setting, candidate: Candidate
    ) -> Path:
        code = code_digest(Path(inspect.getfile(type(route))).parent)
        about: list[Any] = [route.name, dict(route.versions()), code, operator.key, setting.key, target.arch]
        digest = hashlib.sha256(canonical_json([*about, dict(candidate.parameters)])).hexdigest()
        return self.folder / "builds" / f"{digest}.json"

    def _write(self, path: Path, content: bytes) -> int:
        if path.exists():
            return 0
        path.parent.mkdir(parents=True, exist_ok=True)
        half = path.with_name(f".{path.name}.half")
        half.write_bytes(content)
        half.rename(path)
        return len(content)


@functools.cache
def code_digest(folder: Path) -> str:
    """Of a route's package: its templates lie there, and none of its versions tells one from another."""
    found = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file() and "__pycache__" not in one.parts):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()
