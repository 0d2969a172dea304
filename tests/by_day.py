"""What of many cases runs by day: docs/changing.md says which tests do.

Each gives parameters for ``pytest.mark.parametrize``, of which all that is not for the day is nightly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import pytest
from hypothesis import settings


def first(count: int, cases: Iterable[Any]) -> list[Any]:
    """The first ``count`` by day: draws of one mechanism."""
    return [_param(case, at < count) for at, case in enumerate(cases)]


def one_of_each(key: Callable[[Any], Hashable], cases: Iterable[Any]) -> list[Any]:
    """By day the first case for each value of ``key``: what tells mechanisms apart."""
    seen, made = set[Hashable](), list[Any]()
    for case in cases:
        made.append(_param(case, (of := key(_value(case))) not in seen))
        seen.add(of)
    return made


def only(day: Iterable[Any], cases: Iterable[Any]) -> list[Any]:
    """Those of ``day``, which must be among the cases."""
    by_day, cases = list(day), list(cases)
    if strangers := [case for case in by_day if case not in [_value(one) for one in cases]]:
        raise ValueError(f"not among the cases: {strangers}")
    return [_param(case, _value(case) in by_day) for case in cases]


def draws(count: int) -> int:
    """So many of Hypothesis's, by day a quarter of them: of those that a test needs more of than others."""
    return max(count * settings().max_examples // 100, 1)


def _is_param(case: Any) -> bool:
    return isinstance(case, type(pytest.param()))


def _value(case: Any) -> Any:
    return case.values[0] if _is_param(case) else case


def _param(case: Any, by_day: bool) -> Any:
    values, marks, name = (case.values, case.marks, case.id) if _is_param(case) else ((case,), (), None)
    return pytest.param(*values, id=name, marks=[*marks, *[pytest.mark.nightly] * (not by_day)])
