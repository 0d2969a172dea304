"""One service for all that is typed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dashboard.webhooks.receiver import Receiver, receiving
from tests.distribution.tree import copy_tree, run
from tests.docs.reading import blocks
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
    """An empty environment with the wheel in it, made as the README says."""
    tree = copy_tree(tmp_path_factory.mktemp("job") / "tree")
    for stamp in ("opatlas", "dev"):  # in this order: the second is made anew where the first is newer
        (tree / ".venv" / f"{stamp}.stamp").touch()
    [text] = [block.text for block in blocks() if "pip install dist/" in block.text]
    # Bytecode of what ONNX Runtime brings and the example never imports would take longer than the rest.
    run(["bash", "-euo", "pipefail", "-c", text], tree, timeout_s=280, PIP_NO_COMPILE="1")
    return str(tree / "job/bin/python")


@pytest.fixture(scope="package")
def delivered(service: Service, receiver: Receiver) -> tuple[str, Any]:
    """An endpoint's secret, and what it got when somebody pressed Test."""
    endpoint = service.call("webhooks/endpoints/", {"url": receiver.url})
    service.call(f"webhooks/endpoints/{endpoint['id']}/test", {})
    return endpoint["secret"], until(lambda: receiver.got, "a delivery")[-1]
