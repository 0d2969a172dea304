"""What PyTorch and ONNX Runtime both compute passes by either, in sandboxes, against PyTorch in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="references are PyTorch's")

from opatlas.identity import Setting
from tests.opatlas.load.operators import Case, ints, normal, operator_of
from tuning.measure.laboratory import Laboratory
from tuning.measure.outcome import Status
from tuning.routes.base import Budget, BuiltArtifact
from tuning.routes.registry import route

SCALES = np.array([1, 1, 1.7, 0.6], np.float32)
POLICY = {"mode": "linear", "axes": [2, 3], "keep_aspect_ratio_policy": "not_larger"}
RESIZES = {
    "not larger": Case("Resize", [normal(1, 2, 9, 11), None, None, ints(4, 5)], POLICY, fixed=[3]),
    "bytes": Case("Resize", [np.ones((1, 2, 6, 7), np.uint8), None, SCALES], {"mode": "linear"}, fixed=[2]),
}


@pytest.mark.parametrize("name", RESIZES)
def test_a_resize_is_right_by_both(lab: Laboratory, setting: Setting, tmp_path: Path, name: str) -> None:
    operator, _ = operator_of(RESIZES[name])
    for library in ("eager", "onnxruntime"):
        [candidate] = route(library).candidates(operator, lab.target, setting, Budget(1.0, 1))
        built = lab.build(route(library), operator, setting, candidate, tmp_path / library)
        assert isinstance(built, BuiltArtifact)
        assert lab.check(operator, setting, built).status is Status.OK, library
