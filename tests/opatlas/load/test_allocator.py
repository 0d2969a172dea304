"""Large tensors from the heap: asked for by a recipe, seen in how many pages are faulted in."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

FAULTS = """
import resource, sys
from pathlib import Path
import numpy as np
from opatlas.identity import Setting, parse_operator
from opatlas.load import Manifest, load

operator = parse_operator({"op": "Relu", "inputs": [{"dtype": "float32", "shape": [3000, 4000]}]})
recipe = {"library": "torch", "call": "eager", "memory": sys.argv[1]}
kernel = load(Manifest(kind="recipe", route="eager", operator=operator.to_json(),
                       setting=Setting(threads=1).to_json(), recipe=recipe), Path())
x = np.linspace(-1, 1, 12_000_000, dtype=np.float32).reshape(3000, 4000)
bound = kernel.bind({0: x})
for _ in range(24):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    bound()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
assert np.array_equal(bound.outputs()[0], np.maximum(x, 0))
"""


def faults(memory: str) -> list[int]:
    """Pages faulted in by each of 24 runs."""
    command = [sys.executable, "-W", "ignore", "-c", FAULTS, memory]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return [int(line) for line in done.stdout.split()]


def test_the_heap_is_faulted_in_once_and_mapped_memory_in_every_run() -> None:
    """48 MB are 11,719 pages of 4 KiB, 23 where the system has large ones. The heap grows now and then at
    first, since an output lives until the next one is there."""
    assert sum(pages <= 5 for pages in faults("heap")) >= 12
    assert all(pages >= 20 for pages in faults("mapped"))
