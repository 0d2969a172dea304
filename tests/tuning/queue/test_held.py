"""What one worker holds: taken as it was seen, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuning.models import Exploration, State
from tuning.queue.clock import now_in
from tuning.queue.held import take

pytestmark = pytest.mark.django_db


def test_a_lease_that_was_renewed_after_the_look_is_not_taken(make_exploration: Callable[..., Any]) -> None:
    pk = make_exploration(state=State.RUNNING).pk
    Exploration.objects.filter(pk=pk).update(lease_owner="slow", lease_expires_at=now_in(-1))
    seen = Exploration.objects.get(pk=pk)
    Exploration.objects.filter(pk=pk).update(lease_expires_at=now_in(60))
    assert take(seen, "quick") is None
    assert Exploration.objects.get(pk=pk).lease_owner == "slow"
    Exploration.objects.filter(pk=pk).update(lease_expires_at=now_in(-1))
    assert take(seen, "quick", doing="claimed") == seen.fence + 1
    assert take(seen, "late") is None
    row = Exploration.objects.get(pk=pk)
    assert (row.lease_owner, row.doing, row.fence) == ("quick", "claimed", seen.fence + 1)
