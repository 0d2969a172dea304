"""The webhooks' tests once more, on PostgreSQL: claims, upserts that are ignored, locks."""

import pytest

from tests.services import once_more_on_postgres


@pytest.mark.services
@pytest.mark.slow
def test_webhooks_behave_the_same_on_postgres(private_postgres):
    once_more_on_postgres(
        private_postgres,
        "tests/dashboard/webhooks/test_delivering.py",
        "tests/dashboard/webhooks/test_api.py",
        "tests/dashboard/operation/test_metrics.py",
    )
