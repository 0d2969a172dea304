"""``python -m tests``: ``make test``. All tests but those marked ``nightly``, in processes forked from one
that has read them (:mod:`tests.forked`). Further arguments are pytest's. How long each part and each test
took is written to var/test-times/, and the machine's own speed is printed beside it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time

from tests.services import make_migrated
from tests.times import FOLDER, machine_s, parts_took

# More than there are cores: tests in parallel wait for children, leases and pages for part of their time.
PROCESSES = len(os.sched_getaffinity(0)) + 2
FORKED = ("-q", "-p", "tests.forked", "--processes", str(PROCESSES), "--again")
BY_DAY = ("-m", "not nightly")


def main(arguments: list[str]) -> int:
    within_a_test = os.environ.get("OPATLAS_TEST_TIMES") == "none"  # which collects, and writes nothing
    if not within_a_test:
        shutil.rmtree(FOLDER, ignore_errors=True)
        # The databases that tests copy are made while the tests are read.
        threading.Thread(target=make_migrated).start()
    began = time.monotonic()
    # What pytest makes of five thousand assertions is kept for the next run: half a minute.
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    code = subprocess.run(
        [sys.executable, "-m", "pytest", *FORKED, *BY_DAY, *arguments], env=inherited
    ).returncode
    took = [*parts_took(), f"all of it: {time.monotonic() - began:.0f} s"]
    print(f"\n=== {'; '.join(took)} (make test-times: the slowest) ===")
    print(f"=== This machine's speed: {machine_s():.2f} s for the fixed piece of work ===", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
