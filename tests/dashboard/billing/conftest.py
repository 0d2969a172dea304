"""A small catalogue that jobs ask, price rules, and what they came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tests.catalog.conftest import ask, place_of, put, setting, target  # noqa: F401


@pytest.fixture(autouse=True)
def own_state(configure: Any, tmp_path: Path) -> Iterator[None]:
    """Every test has its journal and store, and remembers no other's rules."""
    from catalog.best import revoked
    from catalog.usage import journal
    from dashboard.billing import rules

    journal.close()
    revoked.forget()
    rules.forget()
    configure(home=tmp_path / "home", store=tmp_path / "store")
    yield
    rules.forget()


@pytest.fixture
def price(db: None) -> Callable[..., Any]:
    """``price(per_hit=0.01, mode="withhold", method="compiler")`` puts a rule in force; amounts in units."""
    from dashboard.billing import rules
    from dashboard.billing.models import PriceRule

    def make(per_hit: float = 0.0, per_saved_second: float = 0.0, **changes: Any) -> Any:
        fields = {
            "name": "rule",
            "currency": "EUR",
            "created_by": "tests",
            "from_at": timezone.now(),
            "per_hit_micros": round(per_hit * 1e6),
            "per_saved_second_micros": round(per_saved_second * 1e6),
        }
        made = PriceRule.objects.create(**fields | changes)
        rules.forget()
        return made

    return make


@pytest.fixture
def credit(organisation: Any) -> Callable[[float], Any]:
    """``credit(5)`` gives the default organisation so many euros."""
    from dashboard.billing.accounts import give_credit

    def give(units: float, to: Any = None) -> Any:
        return give_credit(
            to or organisation, round(units * 1e6), "for the test", currency="EUR", by={"actor": "tests"}
        )

    return give
