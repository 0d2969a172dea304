"""People who look at pages."""

from tests.dashboard.conftest import administrator, pages

__all__ = ["administrator", "pages"]
