"""The catalogue's tests once more, on PostgreSQL: locks, upserts, bounds of columns, and times."""

import pytest

from tests.services import once_more_on_postgres

ROOMS = ("best", "lookup", "people", "rollups", "usage")
ONLY_HTTP = ("api/test_access.py", "api/test_files.py")
"""Keys, ranges and headers: what the database says to it is one row by its key."""
ELSEWHERE = (*ROOMS, *ONLY_HTTP, "test_choosing.py")
"""In a group of its own; choosing touches no database."""
GROUPS = {
    "rooms": [f"tests/catalog/{name}" for name in ROOMS],
    "the rest": [
        "tests/catalog",
        *(f"--ignore=tests/catalog/{name}" for name in ELSEWHERE),
        "tests/hostile/test_bad_lookups.py",
    ],
    "only http": [f"tests/catalog/{name}" for name in ONLY_HTTP],
}
"""Parts that two processes can share."""


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize(
    "group", [pytest.param(name, marks=[pytest.mark.nightly] * (name == "only http")) for name in GROUPS]
)
def test_the_catalogue_behaves_the_same_on_postgres(private_postgres, group):
    once_more_on_postgres(private_postgres, *GROUPS[group])
