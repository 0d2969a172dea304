"""Training the network that predicts what comes next (``opatlas.client.predict.network``), and its file.

Contrastive: of each place in an order, the operator that came within the next few must score above others
that were drawn by chance and did not. One thread and one seed: the same orders give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opatlas.client.predict.network import FORMAT, WIDTH, Layer, features
from opatlas.errors import InvalidModel
from opatlas.identity import OPSET

HIDDEN, EMBEDDED, LAST, POSITIONS = 128, 64, 4, 9
AHEAD = 10
"""Whoever comes within so many is one that came next."""
DRAWN = 1024
BATCH = 256
RATE, DECAY = 6e-3, 1e-3
IR_VERSION = 10  # of ONNX: the newest that the oldest runtime with our opset reads


@dataclass(frozen=True)
class TrainingWish:
    """``epochs``: how often each place is gone over."""

    epochs: int = 15
    seed: int = 0


@dataclass(frozen=True)
class _Places:
    """Row by row: the last operators (the latest first, -1: none), how many were asked for (its class), and
    those that came next (numbers; the last repeated)."""

    last: Any
    position: Any
    coming: Any


def train(
    orders: Sequence[Mapping[str, Any]],
    wish: TrainingWish | None = None,
    known: Mapping[str, Any] | None = None,
) -> bytes:
    """The file of a network that learnt from orders (key → canonical JSON each); ``known`` operators are
    candidates too, though nothing says when they come. Needs PyTorch. Raises
    :class:`opatlas.errors.InvalidModel` where there is nothing to learn from."""
    import torch

    wish = wish or TrainingWish()
    graphs = {key: graph for order in (*orders, known or {}) for key, graph in order.items()}
    keys = sorted(graphs)
    if sum(len(order) > 1 for order in orders) < 2:
        raise InvalidModel("There is nothing to learn from: it takes two jobs or models at least.")
    rows = torch.tensor(np.stack([features(graphs[key]) for key in keys]))
    numbers = {key: number for number, key in enumerate(keys)}
    places = _places([[numbers[key] for key in order] for order in orders])
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng():
            torch.manual_seed(wish.seed)
            parts = _fitted(rows, places, wish)
        with torch.no_grad():
            body = parts["body"](rows)
            tables = {name: parts[name](body).numpy() for name in ("after", "candidates")}
    finally:
        torch.set_num_threads(threads)
    tables |= {name: parts[name].detach().numpy() for name in ("decay", "position")}
    layers = [*parts["body"], parts["after"]]
    return to_onnx(keys, [_weights(layer) for layer in layers], tables)


def to_onnx(keys: Sequence[str], layers: Sequence[Layer], tables: Mapping[str, np.ndarray]) -> bytes:
    """The file: ``layers`` from features to a row of ``after``, ``tables`` as
    :class:`opatlas.client.predict.network.OperatorNetwork` has them."""
    from onnx import TensorProto, helper, numpy_helper

    nodes, arrays, name = [], dict(tables), "features"
    for number, layer in enumerate(layers):
        made = f"step{number}"
        if layer is None:
            nodes.append(helper.make_node("Relu", [name], [made]))
        else:
            arrays |= {f"{made}.weight": layer[0], f"{made}.bias": layer[1]}
            nodes.append(helper.make_node("Gemm", [name, f"{made}.weight", f"{made}.bias"], [made]))
        name = made
    graph = helper.make_graph(
        nodes,
        "predictor",
        [helper.make_tensor_value_info("features", TensorProto.FLOAT, ["operators", WIDTH])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["operators", tables["after"].shape[1]])],
        [numpy_helper.from_array(np.ascontiguousarray(array), one) for one, array in arrays.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    helper.set_model_props(model, {"opatlas": str(FORMAT), "operators": json.dumps(list(keys))})
    return model.SerializeToString(deterministic=True)


def _places(orders: Sequence[Sequence[int]]) -> _Places:
    import torch

    last, position, coming = [], [], []
    for order in orders:
        for place in range(len(order) - 1):
            before = list(reversed(order[max(0, place + 1 - LAST) : place + 1]))
            ahead = list(order[place + 1 : place + 1 + AHEAD])
            last.append(before + [-1] * (LAST - len(before)))
            position.append(min((place + 1).bit_length() - 1, POSITIONS - 1))
            coming.append(ahead + ahead[-1:] * (AHEAD - len(ahead)))
    return _Places(torch.tensor(last), torch.tensor(position), torch.tensor(coming))


def _fitted(rows: Any, places: _Places, wish: TrainingWish) -> dict[str, Any]:
    import torch
    from torch import nn

    body = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU())
    after, candidates = nn.Linear(HIDDEN, EMBEDDED), nn.Linear(HIDDEN, EMBEDDED)
    decay = nn.Parameter(1 / torch.arange(1, LAST + 1, dtype=torch.float32))
    position = nn.Parameter(torch.zeros(POSITIONS, EMBEDDED))
    learnt = [*body.parameters(), *after.parameters(), *candidates.parameters(), decay, position]
    optimiser = torch.optim.AdamW(learnt, RATE, weight_decay=DECAY)
    steps = wish.epochs * -(-len(places.last) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for _ in range(wish.epochs):
        for chosen in torch.randperm(len(places.last)).split(BATCH):
            last, coming = places.last[chosen], places.coming[chosen]
            target = coming[torch.arange(len(chosen)), torch.randint(0, AHEAD, (len(chosen),))]
            drawn = torch.cat([target, torch.randint(0, len(rows), (DRAWN,))])
            said = after(body(rows[last.clamp(min=0)])) * ((last >= 0) * decay)[..., None]
            context = said.sum(1) + position[places.position[chosen]]
            scores = context @ candidates(body(rows[drawn])).T
            # Whoever came next as well is no counterexample; the one that was drawn for it is the example.
            right = (drawn[None, :, None] == coming[:, None, :]).any(-1)
            right[torch.arange(len(chosen)), torch.arange(len(chosen))] = False
            loss = nn.functional.cross_entropy(scores.masked_fill(right, -1e9), torch.arange(len(chosen)))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return {"body": body, "after": after, "candidates": candidates, "decay": decay, "position": position}


def _weights(layer: Any) -> Layer:
    """As ONNX's Gemm takes them; None of a Relu."""
    if not hasattr(layer, "weight"):
        return None
    return layer.weight.detach().numpy().T, layer.bias.detach().numpy()
