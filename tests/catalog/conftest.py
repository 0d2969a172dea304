"""A target, a setting, and operators that are known."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.catalog import making


@pytest.fixture(autouse=True)
def own_folders(configure: Any, tmp_path: Path) -> None:
    """Every test has its journal, its store, and what a process remembers to itself."""
    from catalog.best import revoked, vouching
    from catalog.usage import journal

    journal.close()
    revoked.forget()
    vouching.forget()
    configure(home=tmp_path / "home", store=tmp_path / "store")


@pytest.fixture
def target(db: None) -> Any:
    from catalog.registry import register_target

    return register_target(making.TARGET)


@pytest.fixture
def setting(db: None) -> Any:
    from catalog.registry import register_setting

    return register_setting(making.SETTING)


@pytest.fixture
def place_of(target: Any, setting: Any) -> Callable[[int], dict[str, Any]]:
    """``place_of(64)``: operator, target and setting rows for a Relu of that length."""
    from catalog.registry import register_operator

    def place(length: int) -> dict[str, Any]:
        return {"operator": register_operator(making.relu(length)), "target": target, "setting": setting}

    return place


@pytest.fixture
def put(place_of: Callable[[int], dict[str, Any]]) -> Callable[..., Any]:
    """``put(64, "eager", 1.0)`` publishes a result for a Relu of that length."""
    from catalog.best.publishing import publish

    def put_one(length: int, route: str, ratio: float, **changes: Any) -> Any:
        return publish(making.new_result(place_of(length), route, ratio, **changes))

    return put_one


@pytest.fixture
def ask(target: Any, setting: Any, organisation: Any) -> Callable[..., Any]:
    """``ask(64, 128, …)`` looks Relus of these lengths up; options are LookupRequest's."""
    from catalog.lookup.lookups import AskedOperator, LookupRequest, lookup

    def ask_for(*lengths: int, related: tuple[int, ...] = (), with_graph: bool = True, **options: Any) -> Any:
        def asked(length: int) -> AskedOperator:
            operator = making.relu(length)
            return AskedOperator(operator.key, options.get("calls", 1.0), operator if with_graph else None)

        chosen = {name: value for name, value in options.items() if name != "calls"}
        return lookup(
            LookupRequest(
                **{"target": target, "setting": setting, "organisation": organisation, **chosen},
                operators=[asked(length) for length in lengths],
                related=[asked(length) for length in related],
            )
        )

    return ask_for
