"""Route × tier once more where the worker is an ordinary user: it keeps its id, and has user namespaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ordinary_user import needs_root, passes_as_user

pytestmark = [pytest.mark.nightly, pytest.mark.slow, *needs_root]


def test_every_route_works_in_every_tier() -> None:
    matrix = Path(__file__).with_name("test_in_every_tier.py")
    passes_as_user(str(matrix), "-k", "not timed", timeout_s=600)
