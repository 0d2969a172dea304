"""What pytest makes of assertions, twenty seconds for all tests, is made once by all processes together.

Each would else make all of it, at the same time as the others; from then on it lies beside the modules.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_a_share(config: pytest.Config) -> None:
    """One of several processes that read all tests rewrites its part of what no run has kept."""
    worker = getattr(config, "workerinput", None)
    if not worker or sys.dont_write_bytecode or config.args_source != config.ArgsSource.TESTPATHS:
        return
    number, count = int(worker["workerid"].removeprefix("gw")), worker["workercount"]
    tests = Path(__file__).parent
    paths = sorted([*tests.rglob("test_*.py"), *tests.rglob("conftest.py")])
    for path in paths[number % count :: count]:
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            digest, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, kept)
