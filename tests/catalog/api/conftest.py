"""The body of a lookup."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.catalog import making


@pytest.fixture
def body(target: Any, setting: Any) -> Callable[..., dict[str, Any]]:
    """``body(64, 65, wait_s=1)``: a lookup of Relus with these lengths, by graph."""

    def make(*lengths: int, **fields: Any) -> dict[str, Any]:
        operators = [{"graph": making.relu_json(length)} for length in lengths]
        return {"target": target.key, "setting": setting.key, "operators": operators, **fields}

    return make
