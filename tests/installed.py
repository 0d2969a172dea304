"""Libraries that tests may lack."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*modules: str) -> None:
    """Skip a file of tests where one of them is not installed. None is imported: some begin threads as they
    are, which processes forked later would lack (:mod:`tests.forked`)."""
    for module in modules:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed", allow_module_level=True)
