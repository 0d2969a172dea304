"""``make test-steady TIMES=10``: what runs in parallel, so often in a row, beside two processes that spin.

Tests are read once. It ends at the first failure, which fails it; nothing is asked again."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

from tests.__main__ import FORKED

SPINNING = 2


def main(times: str, *more: str) -> int:
    with ExitStack() as stack:
        for _ in range(SPINNING):
            spinning = stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"]))
            stack.callback(spinning.kill)
        forked = [option for option in FORKED if option != "--again"]
        chosen = ("-m", "not nightly and not alone and not timing")
        code = subprocess.run(
            [sys.executable, "-m", "pytest", *forked, "--times", times, *chosen, *more],
            env={**os.environ, "OPATLAS_TEST_TIMES": "none"},
        ).returncode
    how = "Steady" if not code else "Not steady"
    print(f"=== {how}: {times} times in a row were asked for, beside {SPINNING} spinning processes ===")
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
