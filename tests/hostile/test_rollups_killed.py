"""SIGKILL while rollups are made: the next one makes them whole."""

from __future__ import annotations

import pytest

from tests.hostile.conftest import Deployment, by_day_on

pytestmark = pytest.mark.slow

SETUP = """
import django; django.setup()
from tests.figures.traffic_rows import messy_traffic
messy_traffic(lookups=900)
"""


@by_day_on("sqlite")
def test_killed_refreshes_leave_what_the_next_one_finishes(deployment: Deployment) -> None:
    deployment.run("-c", SETUP)
    deployment.run("-m", "tests.hostile.killing", "rebuild_rollups")
    deployment.manage("rebuild_rollups")

    def sums(columns: str, rows: str) -> tuple[int, ...]:
        [found] = deployment.query(f"SELECT {columns} FROM {rows}")
        return tuple(int(number) for number in found)  # PostgreSQL's sums of big integers are decimals

    expected = sums("SUM(hits), SUM(misses)", "catalog_lookuptally")
    for tenants in ("tenant = 'all'", "tenant <> 'all'"):
        for grain in ("hour", "day"):
            rows = f"catalog_trafficslot WHERE {tenants} AND grain = '{grain}'"
            assert sums("SUM(hits), SUM(misses)", rows) == expected
        assert sums("SUM(hits), SUM(misses)", f"catalog_operatortotal WHERE {tenants}") == expected
        assert sums("SUM(hits)", f"catalog_routeslot WHERE {tenants}") == expected[:1]
    assert deployment.query("SELECT COUNT(*) FROM catalog_stalehour") == [(0,)]
