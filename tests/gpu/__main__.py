"""``python -m tests.gpu [MODULE …] [options of pytest's]``: tests about devices, which need no service.

Those on a device first, then those on simulated ones. A process each: CUDA is initialised in some.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FOLDERS = ("tests/gpu", "tests/opatlas/load/cuda", "tests/tuning/measure/device")
OTHERS = (
    "tests/opatlas/identity/test_gpus.py",
    "tests/opatlas/load/test_torch_on_device.py",
    "tests/opatlas/streams/test_cuda_device.py",
    "tests/tuning/measure/judging/test_walk_on_device.py",
    "tests/tuning/measure/scrutiny/test_referees.py",
    "tests/tuning/measure/test_on_a_device.py",
    "tests/tuning/routes/manual/test_cuda.py",
    "tests/tuning/routes/compiler/test_triton.py",
    "tests/tuning/routes/compiler/test_inductor_on_device.py",
)
PYTEST = (
    *(sys.executable, "-m", "pytest", "--noconftest", "-p", "tests.gpu.conftest", "-p", "no:cacheprovider"),
    *("-p", "no:django", "-c", "tests/gpu/pytest.ini", "--rootdir", "."),
)
NOTHING_COLLECTED = 5  # pytest's exit code; so it ends, too, where a module skips itself


def modules(root: Path = Path()) -> list[str]:
    found = [
        f"{folder}/{path.name}" for folder in FOLDERS for path in sorted((root / folder).glob("test_*.py"))
    ]
    return [*found, *OTHERS]


def main(given: Sequence[str]) -> int:
    named = [one for one in given if one.endswith(".py")]
    options = [one for one in given if one not in named]
    fine = {0} if "-k" in options else {0, NOTHING_COLLECTED}
    failed = []
    for module in named or modules():
        print(f"== {module}", flush=True)
        code = subprocess.run([*PYTEST, *options, module], check=False).returncode
        if code not in fine:
            failed.append(module)
    print("\n".join(f"failed: {module}" for module in failed), flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
