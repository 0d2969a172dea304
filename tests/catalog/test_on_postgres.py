"""The catalogue's tests once more, on PostgreSQL: locks, upserts, bounds of columns, and times."""

import pytest

from tests.services import once_more_on_postgres

ROOMS = ("best", "lookup", "people", "rollups", "usage")
GROUPS = {
    "api": ["tests/catalog/api"],
    "rooms": [f"tests/catalog/{name}" for name in ROOMS],
    "the rest": [
        "tests/catalog",
        *(f"--ignore=tests/catalog/{name}" for name in ("api", *ROOMS, "test_choosing.py")),
        "tests/hostile/test_bad_lookups.py",
        "tests/compatibility/test_adopting.py",
    ],
}
"""All that touches the database (choosing does not), and adopting old homes,
in parts that two processes can share."""


@pytest.mark.services
@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_the_catalogue_behaves_the_same_on_postgres(private_postgres, group):
    once_more_on_postgres(private_postgres, *GROUPS[group])
