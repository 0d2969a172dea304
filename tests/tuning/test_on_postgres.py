"""Rounds and environments once more, on PostgreSQL: row locks, compare-and-swap, restrictions of claims."""

import os
import subprocess
import sys

import pytest


@pytest.mark.services
@pytest.mark.slow
def test_rounds_and_environments_behave_the_same_on_postgres(private_postgres):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/tuning/test_rounds.py",
         "tests/tuning/test_environments.py", "tests/tuning/test_environments_api.py"],
        env={**os.environ, "DATABASE_URL": private_postgres.new_database()},
        capture_output=True,
        text=True,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
