"""One service for all that is typed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.webhooks.receiver import Receiver, receiving
from tests.distribution.tree import job_environment
from tests.docs.reading import job_installation
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
def job_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an environment with what a job installs, as the README says, and nothing else."""
    [pinned] = re.findall(r"onnxruntime==\S+", job_installation().text)
    return str(job_environment(tmp_path_factory.mktemp("job") / "job", pinned))


@pytest.fixture(scope="package")
def delivered(service: Service, receiver: Receiver) -> tuple[str, Any]:
    """An endpoint's secret, and what it got when somebody pressed Test."""
    endpoint = service.call("webhooks/endpoints/", {"url": receiver.url})
    service.call(f"webhooks/endpoints/{endpoint['id']}/test", {})
    return endpoint["secret"], until(lambda: receiver.got, "a delivery")[-1]
