"""Tests run by an ordinary user, where the suite itself is root's."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

USER = 23456
ROOT = Path(__file__).parents[1]

# Python may lie below /root, which others may not enter: in a mount namespace of our own, they may.
_OPEN_ROOT = """
set -e
mount -t tmpfs -o mode=755 none /mnt
for inside in $SHOWN; do mkdir -p "/mnt$inside"; mount --rbind "$inside" "/mnt$inside"; done
mount --rbind /mnt/root /root
exec "$@"
"""

needs_root = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the suite is an ordinary user's anyway"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed"),
]


def passes_as_user(*arguments: str, timeout_s: float = 300) -> None:
    """``pytest`` with these arguments, as a user without groups, capabilities or anything of root's: it must
    pass, and skip nothing. Skips the calling test where others may not enter what Python needs."""
    python = Path(sys.executable).resolve().parents[1]
    as_user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", "--inh-caps=-all"]
    opened: list[str] = []
    if (closed := _closed_to_others(python)) == Path("/root"):
        opened = ["unshare", "--mount", "/bin/sh", "-c", _OPEN_ROOT, "opened"]
    elif closed is not None:
        pytest.skip(f"others may not enter {closed}, where Python lies")
    for needed in (ROOT, Path(sys.prefix)):
        if (closed := _closed_to_others(needed)) is not None:
            pytest.skip(f"others may not enter {closed}, where {needed} lies")
    home = Path("/tmp") / f"opatlas-user-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, USER, USER)
    try:
        done = subprocess.run(
            [*opened, *as_user, sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
            env={
                "PATH": os.environ["PATH"], "HOME": str(home), "TMPDIR": str(home), "SHOWN": str(python),
                "OPATLAS_CACHE": str(home / "cache"), "OPATLAS_HOME": str(home / "state"),
                "OPATLAS_TEST_TIMES": "none", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(home, ignore_errors=True)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout, done.stdout[-300:]


def _closed_to_others(path: Path) -> Path | None:
    """The first folder on the way that others may not enter."""
    way = [*reversed(path.resolve().parents), path.resolve()]
    return next((one for one in way if one.is_dir() and not one.stat().st_mode & stat.S_IXOTH), None)
