"""One service for all that is typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.webhooks.receiver import Receiver, receiving
from tests.docs.service import Service, running, until


@pytest.fixture(scope="package")
def receiver() -> Iterator[Receiver]:
    with receiving() as one:
        yield one


@pytest.fixture(scope="package")
def service(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[Service]:
    home = tmp_path_factory.mktemp("service") / "home"
    with running(home, OPATLAS_WEBHOOKS_ALLOW=receiver.address) as one:
        yield one


@pytest.fixture(scope="package")
def delivered(service: Service, receiver: Receiver) -> tuple[str, Any]:
    """An endpoint's secret, and what it got when somebody pressed Test."""
    endpoint = service.call("webhooks/endpoints/", {"url": receiver.url})
    service.call(f"webhooks/endpoints/{endpoint['id']}/test", {})
    return endpoint["secret"], until(lambda: receiver.got, "a delivery")[-1]
