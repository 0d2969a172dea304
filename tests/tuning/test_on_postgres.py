"""Rounds, environments, promoting and evaluating once more, on PostgreSQL: row locks, claims, changes."""

import pytest

from tests.services import once_more_on_postgres


@pytest.mark.services
@pytest.mark.slow
def test_rounds_and_environments_behave_the_same_on_postgres(private_postgres):
    told = once_more_on_postgres(
        private_postgres,
        "tests/tuning/queue/test_rounds.py",
        "tests/tuning/environments/test_environments.py",
        "tests/tuning/environments/test_api.py",
        "tests/tuning/queue/test_promote.py",
        "tests/tuning/kernels/test_evaluating.py",
    )
    assert "skipped" not in told
