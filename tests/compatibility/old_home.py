"""What a real service of 7fa76a5 left: its SQLite file, store, journal and keys.

A worker had explored four operators (a hand-written kernel of the organisation Ada Labs, approved, won one of
them; another of its kernels waits); there are a price rule, credit, charges, a model, a webhook, users and
keys. One miss is still in the journal. XLA's and Inductor's packages were taken out: they name the folders of
the machine. It served nobody, so its keys may lie here.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.databases import ROOT


def unpack(folder: Path) -> Path:
    """Unpack it below ``folder``; gives the home."""
    with tarfile.open(ROOT / "tests/data/home_7fa76a5.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / "home"
