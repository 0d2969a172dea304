"""The webhooks' tests once more, on PostgreSQL: claims, upserts that are ignored, locks."""

import os
import subprocess
import sys

import pytest


@pytest.mark.services
@pytest.mark.slow
def test_webhooks_behave_the_same_on_postgres(private_postgres):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not services and not slow",
         "tests/dashboard/webhooks/test_delivering.py", "tests/dashboard/webhooks/test_api.py",
         "tests/dashboard/operation/test_metrics.py"],
        env={**os.environ, "DATABASE_URL": private_postgres.new_database()},
        capture_output=True,
        text=True,
        timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
