"""Two processes of one job: collectives in a graph stay in step."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.databases import ROOT

RANK = """
import sys
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives
from torch.nn.parallel import DistributedDataParallel

from opatlas.dynamo.backend import opatlas, torch_report

rank = int(sys.argv[1])
torch.manual_seed(rank)
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.FileStore(sys.argv[2], 2), rank=rank, world_size=2)
weight, x = torch.randn(16, 16), torch.ones(4, 16)

def columns(x):
    return collectives.all_reduce(x @ weight, "sum", dist.group.WORLD).relu()

def alone(x):
    return (x @ weight).relu()

options = {"try_s": 0.2 * (1 + rank), "offline": True}  # ranks would time for unlike times
for model in (columns, alone):
    run = torch.compile(model, backend=opatlas, options=options)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(run(x), model(x))
layer = DistributedDataParallel(torch.nn.Linear(16, 4))
run = torch.compile(layer, backend=opatlas, options=options)
for _ in range(2):
    run(x * (1 + rank)).square().sum().backward()
gradients = [torch.empty(4, 16) for _ in range(2)]
dist.all_gather(gradients, layer.module.weight.grad)
torch.testing.assert_close(*gradients)
assert {graph.chosen for graph in torch_report().graphs} == {"PyTorch eager"}
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_two_ranks_with_collectives_end_and_are_right(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OPATLAS_CACHE": str(tmp_path / "cache")}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "store")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        said = [rank.communicate(timeout=240)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(said)
