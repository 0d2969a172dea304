"""What killed workers left on the disk is removed, what live ones use is not."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tuning.explore import scratch


def test_only_old_folders_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead = 2**22 + 1  # beyond the largest process id
    names = [
        f"lab-{dead}-7f",
        f"lab-{os.getpid()}-7f",
        f"work/work-{dead}-x",
        f"work/work-{dead}-new",
        "tuning/o1",
    ]
    for name in names:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        if not name.endswith("new"):
            os.utime(folder, (time.time() - 3600,) * 2)
    assert scratch.sweep(tmp_path) == 2
    assert [name for name in names if (tmp_path / name).exists()] == [names[1], names[3], names[4]]
