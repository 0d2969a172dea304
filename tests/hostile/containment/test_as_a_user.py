"""The same attacks where the worker is an ordinary user: it keeps its id, and namespaces alone must hide."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ordinary_user import needs_root, passes_as_user

pytestmark = [pytest.mark.nightly, pytest.mark.slow, *needs_root]


def test_containment_holds_for_an_ordinary_users_worker() -> None:
    passes_as_user(str(Path(__file__).parent), "-k", "not used_up and not bomb and not ordinary")
