"""``options={"plan": True}``: calls that the service's plan fuses run by one kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from opatlas.dynamo import contest
from opatlas.dynamo.kernels import KernelSite
from opatlas.dynamo.report import TorchReport
from opatlas.identity import Operator
from opatlas.load.c_abi import AddressedCall
from opatlas.load.kernel import KernelFailed
from tests.opatlas.dynamo.making import KnowsAll, compiled
from tests.opatlas.load.kernels import HEADER

SIZE = 1000
LONG = torch.linspace(-1.0, 1.0, SIZE)
BOTH = """
int opatlas_run(const opatlas_tensor* t, int32_t n, const opatlas_threads* threads, void* state) {
  const float *x = t[X].data, *w = t[1 - X].data;
  float* z = t[2].data;
  for (int64_t i = 0; i < t[0].shape[0]; i++) z[i] = (x[i] + w[i] > 0 ? x[i] + w[i] : 0) + x[i];
  return 0;
}
"""


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.0, 1.0, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.weight) + x


@pytest.fixture(autouse=True)
def a_worker(uploads_at_once: None) -> None:
    """Plans are made as they are asked for."""


@pytest.fixture
def published(publish_add: Any, publish_all: Any, job: Any, tmp_path: Path, kernels_win: None) -> Any:
    """Asks as a first job would, and publishes all three calls as one in C; ``run()`` is a later job's."""
    from catalog.models import Miss

    def run(cache: str) -> tuple[Any, nn.Module, TorchReport]:
        torch._dynamo.reset()
        model = Residual()
        made, report = compiled(model, job(cache=tmp_path / cache), plan=True)
        with torch.no_grad():
            torch.testing.assert_close(made(LONG), model(LONG))
        return made, model, report

    def missed(op_type: str) -> Operator:
        return Operator.from_json(Miss.objects.get(operator__op_type=op_type, related=False).operator.graph)

    publish_add()
    run("first")
    publish_all([missed("Relu")])  # now each part has a time
    run("second")
    fused = missed("Add+Relu+Add")
    [x] = [one for one in fused.nodes[-1].inputs if one < 2]
    publish_add(
        size=3, source=HEADER + BOTH.replace("[X]", f"[{x}]").replace("- X", f"- {x}"), operator=fused
    )
    return run


def test_calls_that_the_services_plan_fuses_run_by_one_kernel(
    published: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs, with_kernels = list[Any](), contest.with_kernels

    def kept(*given: Any, **named: Any) -> Any:
        graphs.append(with_kernels(*given, **named))
        return graphs[-1]

    monkeypatch.setattr(contest, "with_kernels", kept)
    run, model, report = published("third")
    assert "aten" not in graphs[-1].code  # nothing is computed twice
    (graph,) = report.graphs
    assert (graph.nodes, graph.replaced) == (3, 3), str(report)
    assert graph.chosen == "1 kernels in PyTorch eager" and not graph.remembered
    for x in (-LONG, torch.linspace(-3.0, 1.0, SIZE + 1)[1:]):
        with torch.no_grad():
            torch.testing.assert_close(run(x), model(x))
            model.weight += 1.0  # read at each run
            torch.testing.assert_close(run(x), model(x))
    _, _, again = published("third")
    assert again.graphs[0].remembered and again.graphs[0].replaced == 3


@pytest.mark.parametrize("broken", [(AddressedCall, "__call__"), (KernelSite, "_by_kernel")])
def test_a_fused_kernel_that_fails_gives_way_to_the_calls(
    published: Any, monkeypatch: pytest.MonkeyPatch, broken: tuple[type, str]
) -> None:
    """First to the operator's default, then to PyTorch's own calls."""
    run, model, _ = published("third")

    def fails(*given: Any) -> None:
        raise KernelFailed("out of luck")

    monkeypatch.setattr(*broken, fails)
    with torch.no_grad():
        torch.testing.assert_close(run(-LONG), model(-LONG))


def test_without_a_service_nothing_is_planned(kernels_win: None) -> None:
    run, report = compiled(Residual(), KnowsAll(), plan=True)
    with torch.no_grad():
        run(LONG)
    assert report.graphs[0].replaced == 3 and report.graphs[0].chosen.startswith("3 kernels")
