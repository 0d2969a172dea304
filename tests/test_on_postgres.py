"""What the database decides, once more on PostgreSQL: locks, claims, upserts, bounds of columns, times."""

import pytest

from tests.services import once_more_on_postgres

ROOMS = ("best", "lookup", "people", "rollups", "usage")
ONLY_HTTP = ("api/test_access.py", "api/test_files.py")
"""Keys, ranges and headers: what the database says to it is one row by its key."""
ELSEWHERE = (*ROOMS, *ONLY_HTTP, "test_choosing.py")
"""In another group; choosing touches no database."""
NIGHTLY = "one row by its key, extreme values"
GROUPS = {
    "the catalogue's rooms, agreements, notifications, webhooks": [
        *(f"tests/catalog/{name}" for name in ROOMS),
        "tests/dashboard/billing/test_agreements.py",
        "tests/dashboard/billing/test_payments.py",
        "tests/dashboard/billing/test_repeating.py",
        "tests/dashboard/notifications/test_gathering.py",
        "tests/dashboard/notifications/test_late_commits.py",
        "tests/dashboard/operation/growth/test_sampling.py",
        "tests/dashboard/operation/test_front.py",
        "tests/dashboard/webhooks/test_delivering.py",
        "tests/test_databases.py",
    ],
    "the rest of the catalogue, tuning": [
        "tests/catalog",
        *(f"--ignore=tests/catalog/{name}" for name in ELSEWHERE),
        "tests/hostile/test_bad_lookups.py",
        "tests/tuning/queue/test_rounds.py",
        "tests/tuning/queue/test_promote.py",
        "tests/tuning/queue/test_shares.py",
        "tests/tuning/uploads/test_uploads.py",
        "tests/tuning/environments/test_environments.py",
        "tests/tuning/environments/test_api.py",
        "tests/tuning/kernels/test_caught.py",
        "tests/tuning/kernels/test_evaluating.py",
    ],
    NIGHTLY: [
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
@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.nightly] * (name == NIGHTLY)) for name in GROUPS]
)
def test_it_behaves_the_same_on_postgres(private_postgres, group):
    assert "skipped" not in once_more_on_postgres(private_postgres, *GROUPS[group])
