"""Large tensors from the heap: asked for by a recipe, seen in how many pages are faulted in."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytest.importorskip("torch")

FAULTS = """
import json, os, resource, sys
from pathlib import Path
import numpy as np
import torch
from opatlas.identity import Setting, parse_operator
from opatlas.load import Manifest, load

operator = parse_operator({"op": "Relu", "inputs": [{"dtype": "float32", "shape": [3000, 4000]}]})
x = np.linspace(-1, 1, 12_000_000, dtype=np.float32).reshape(3000, 4000)

def faults(memory):
    recipe = {"library": "torch", "call": "eager", "memory": memory}
    kernel = load(Manifest(kind="recipe", route="eager", operator=operator.to_json(),
                           setting=Setting(threads=1).to_json(), recipe=recipe), Path())
    bound, found = kernel.bind({0: x}), []
    for _ in range(24):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        bound()
        found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    assert np.array_equal(bound.outputs()[0], np.maximum(x, 0))
    print(json.dumps({memory: found}), flush=True)

for memory in ("heap", "mapped"):  # each in a process that has asked for nothing else, forked from one import
    if not (child := os.fork()):
        faults(memory)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def faults() -> dict[str, list[int]]:
    """Pages faulted in by each of 24 runs, by what is asked for."""
    command = [sys.executable, "-W", "ignore", "-c", FAULTS]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return {memory: pages for line in done.stdout.splitlines() for memory, pages in json.loads(line).items()}


def test_the_heap_is_faulted_in_once_and_mapped_memory_in_every_run() -> None:
    """48 MB are 11,719 pages of 4 KiB, 23 where the system has large ones. The heap grows now and then at
    first, since an output lives until the next one is there."""
    found = faults()
    assert sum(pages <= 5 for pages in found["heap"]) >= 12
    assert all(pages >= 20 for pages in found["mapped"])
