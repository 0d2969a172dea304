"""``python3 -m tuning.bare.unpacked``, where a bundle was unpacked: an environment over what the machine has.

Knows nothing but the standard library: what it installs is not there yet.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

WHEELS = Path("wheels")
VENV = Path("var/gpu/venv")
PYCUDA_S = 120.0


def main() -> int:
    """Every wheel that fits this Python, each on its own; PyCUDA where a CUDA compiler could build it."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--system-site-packages", "--without-pip", str(VENV)],
        check=True,
    )
    for path in sorted(WHEELS.glob("*.whl")):
        if why := install(path):
            print(f"not installed: {path.name}: {why}", flush=True)
    for path in sorted(WHEELS.glob("pycuda-*.tar.gz")):
        if shutil.which("nvcc") is None:
            print(f"not built: {path.name}: there is no nvcc here", flush=True)
        elif why := install(path, ["--no-build-isolation"], PYCUDA_S):
            print(f"not built: {path.name}: {why}", flush=True)
    return 0


def install(path: Path, more: tuple[str, ...] | list[str] = (), seconds: float = 120.0) -> str:
    """Into the environment, from the file alone; why not."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--python",
        str(VENV / "bin/python"),
    ]
    command += ["install", "--quiet", "--no-index", "--no-deps", *more, str(path)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"it took longer than {seconds:.0f} s"
    return "" if done.returncode == 0 else next(_reasons(done.stderr), "pip failed")


def _reasons(said: str) -> Iterator[str]:
    yield from (line for line in said.splitlines() if line.startswith("ERROR"))


if __name__ == "__main__":
    sys.exit(main())
