"""The entry points of an installed wheel, for a process that has the source tree alone."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.databases import ROOT


def installed_at(folder: Path) -> Path:
    """A folder for the import path: by it, PyTorch finds the backend."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name, place), = project["entry-points"]["torch_dynamo_backends"].items()  # fmt: skip
    info = folder / "site" / f"opatlas-{project['version']}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: opatlas\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{name} = {place}\n")
    return info.parent
