"""Of tests that need a GPU: without one each is skipped, with the reason. Knows no Django."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from opatlas.identity import Target
from opatlas.identity.place.cuda import NoDevice, detect_gpus
from tuning.measure.device.gpus import Gpu, gpu_named, see_only
from tuning.measure.device.watch import watched
from tuning.measure.laboratory import Laboratory


@pytest.fixture(scope="session")
def gpu() -> Gpu:
    try:
        found = gpu_named("cuda:0")
    except NoDevice as error:
        pytest.skip(f"no GPU: {error}")
    see_only(found)
    return found


@pytest.fixture(scope="session")
def device_target(gpu: Gpu) -> Target:
    return detect_gpus()[0]


@pytest.fixture(scope="session")
def device_laboratory(
    gpu: Gpu, device_target: Target, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Laboratory]:
    with Laboratory(tmp_path_factory.mktemp("device"), device_target, device=watched(gpu)) as laboratory:
        yield laboratory
