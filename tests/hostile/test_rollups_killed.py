"""SIGKILL while rollups are made: the next one makes them whole."""

from __future__ import annotations

import pytest

from tests.hostile.conftest import Deployment, by_day_on

pytestmark = pytest.mark.slow


@by_day_on("sqlite")
def test_what_a_killed_refresh_left_the_next_one_finishes(deployment: Deployment) -> None:
    deployment.run("-m", "tests.hostile.rolling_up")
