"""``python -m tests``: every test. First what can share the cores, then what needs them to itself."""

from __future__ import annotations

import subprocess
import sys
import time

PYTEST = [sys.executable, "-m", "pytest", "-q"]
PHASES = (
    ("in parallel", ["-n", "2", "--dist", "loadgroup", "-m", "not timing and not alone and not nightly"]),
    ("one after the other", ["-m", "(timing or alone) and not nightly"]),
)


def main() -> int:
    worst = 0
    for name, arguments in PHASES:
        started = time.monotonic()
        print(f"\n=== Tests {name} ===", flush=True)
        code = subprocess.run([*PYTEST, *arguments, "--durations=10", *sys.argv[1:]]).returncode
        print(f"=== {name}: {time.monotonic() - started:.0f} s ===", flush=True)
        worst = worst or code
    return worst


if __name__ == "__main__":
    sys.exit(main())
