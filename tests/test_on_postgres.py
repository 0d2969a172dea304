"""What the database decides, once more on PostgreSQL: locks, claims, upserts, bounds of columns, times."""

import pytest

from tests import by_day
from tests.services import once_more_on_postgres

ROOMS = ("best", "lookup", "people", "rollups", "usage")
ONLY_HTTP = ("api/test_access.py", "api/test_files.py")
"""Keys, ranges and headers: what the database says to it is one row by its key."""
ELSEWHERE = (*ROOMS, *ONLY_HTTP, "test_choosing.py")
"""In another group; choosing touches no database."""
BY_DAY = "what locks, claims, inserts or updates, counts by the database's clock, or bounds what it takes"
GROUPS = {
    BY_DAY: [
        "tests/catalog/best/test_publishing.py",
        "tests/catalog/lookup/test_misses.py",
        "tests/catalog/rollups",
        "tests/catalog/usage/test_closing.py",
        "tests/catalog/usage/test_usage.py",
        "tests/dashboard/billing/test_payments.py",
        "tests/dashboard/operation/growth/test_sampling.py",
        "tests/hostile/test_bad_lookups.py",
        "tests/test_databases.py",
        "tests/tuning/queue/test_promote.py",
        "tests/tuning/queue/test_rounds.py",
    ],
    "the catalogue's rooms, agreements, notifications, webhooks": [
        *(f"tests/catalog/{name}" for name in ROOMS),
        "tests/dashboard/billing/test_agreements.py",
        "tests/dashboard/billing/test_repeating.py",
        "tests/dashboard/notifications/test_gathering.py",
        "tests/dashboard/notifications/test_late_commits.py",
        "tests/dashboard/operation/test_front.py",
        "tests/dashboard/webhooks/test_delivering.py",
    ],
    "the rest of the catalogue, tuning": [
        "tests/catalog",
        *(f"--ignore=tests/catalog/{name}" for name in ELSEWHERE),
        "tests/tuning/queue/test_shares.py",
        "tests/tuning/uploads/test_uploads.py",
        "tests/tuning/environments/test_environments.py",
        "tests/tuning/environments/test_api.py",
        "tests/tuning/kernels/test_caught.py",
        "tests/tuning/kernels/test_evaluating.py",
    ],
    "one row by its key, extreme values": [
        "tests/tenancy/test_extremes.py",
        "tests/hostile/test_extreme_files.py",
        *(f"tests/catalog/{name}" for name in ONLY_HTTP),
        "tests/dashboard/notifications/test_delivering.py",
        "tests/dashboard/webhooks/test_api.py",
        "tests/dashboard/operation/test_metrics.py",
    ],
}
"""A process each: starting one takes as long as a hundred tests."""


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("group", by_day.only([BY_DAY], GROUPS))
def test_it_behaves_the_same_on_postgres(private_postgres, group, request):
    nightly = "not nightly" not in request.config.getoption("markexpr")
    assert "skipped" not in once_more_on_postgres(private_postgres, *GROUPS[group], nightly=nightly)
