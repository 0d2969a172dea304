"""What pytest makes of assertions, twenty seconds for all tests, is made on two cores; then it lies beside
the modules."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


@contextmanager
def rewritten_meanwhile(config: pytest.Config) -> Iterator[None]:
    """A process of its own begins at the end of what no run has kept, while this one reads from the start."""
    if sys.dont_write_bytecode or config.args_source != config.ArgsSource.TESTPATHS:
        yield
        return
    helper = os.fork()
    if not helper:
        try:
            _rewrite(config)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    try:
        yield
    finally:
        os.waitpid(helper, 0)


def _rewrite(config: pytest.Config) -> None:
    tests = Path(__file__).parent
    for path in sorted([*tests.rglob("test_*.py"), *tests.rglob("conftest.py")], reverse=True):
        kept = rewrite.get_cache_dir(path) / f"{path.stem}{rewrite.PYC_TAIL}"
        if not kept.exists():
            kept.parent.mkdir(exist_ok=True)
            digest, code = rewrite._rewrite_test(path, config)
            rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, digest, kept)
