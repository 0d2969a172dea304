"""An unchanged script, run twice: what the first run missed and others explored is in the second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from opatlas.client.cache.memory import MISS_LIFE_S
from opatlas.graph.aten import CallRecord, TensorArgument, map_aten
from opatlas.identity import Operator, canonicalise
from tests.databases import ROOT
from tests.opatlas.dynamo.installed import installed_at
from tests.opatlas.load.kernels import HEADER

SCRIPT = """
import json, sys
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.cumsum(x, 0)

model, x = Model(), torch.ones(1000, 1000)
options = {"frameworks": ["eager"], "try_s": 1.0}  # Inductor's first graph takes many seconds
run = torch.compile(model, backend="opatlas", options=options)
with torch.no_grad():
    right = torch.equal(run(x), model(x))
"""

SAID = """
import opatlas
[graph] = opatlas.torch_report().graphs
print(json.dumps({"right": right, "chosen": graph.chosen, "known": graph.known, "replaced": graph.replaced,
                  "left_out": graph.left_out, "why": graph.why}))
"""

BY_ROWS = (
    HEADER
    + """
/* Sums down the columns, row by row: PyTorch goes down each column, a cache line for every number. */
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float* x = t[0].data;
  float* y = t[1].data;
  int64_t rows = t[0].shape[0], columns = t[0].shape[1];
  memcpy(y, x, sizeof(float) * columns);
  for (int64_t i = 1; i < rows; i++)
    for (int64_t j = 0; j < columns; j++) y[i * columns + j] = y[(i - 1) * columns + j] + x[i * columns + j];
  return 0;
}
"""
)


def cumulative_sum() -> Operator:
    tensor = TensorArgument("float32", (1000, 1000), name="self")
    return canonicalise(map_aten(CallRecord("aten.cumsum.default", (tensor,), {"dim": 0})).model).operator


@pytest.mark.slow
@pytest.mark.timing
def test_the_second_run_of_a_script_has_what_was_explored_since(
    publish_add: Any, live_server: Any, make_key: Any, tmp_path: Path
) -> None:
    from catalog.models import Miss

    path = tmp_path / "script.py"
    path.write_text(SCRIPT + SAID)
    environment = os.environ | {
        "OPATLAS_URL": live_server.url,
        "OPATLAS_KEY": make_key("lookup"),
        "OPATLAS_CACHE": str(tmp_path / "cache"),
        "OMP_NUM_THREADS": "1",  # as what is published was timed
        "PYTHONPATH": os.pathsep.join([str(installed_at(tmp_path)), str(ROOT)]),
    }

    def run() -> dict[str, Any]:
        done = subprocess.run([sys.executable, path], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    first = run()
    ended = time.monotonic()
    assert first["right"] and (first["known"], first["replaced"], first["why"]) == (0, 0, "")
    assert [miss.operator.key for miss in Miss.objects.filter(related=False)] == [cumulative_sum().key]
    publish_add(source=BY_ROWS, operator=cumulative_sum())  # a worker has explored
    time.sleep(max(0.0, ended + MISS_LIFE_S + 0.1 - time.monotonic()))
    second = run()
    assert second["right"] and (second["known"], second["replaced"]) == (1, 1), second
    assert second["chosen"].startswith("1 kernels in ") and not second["left_out"]
