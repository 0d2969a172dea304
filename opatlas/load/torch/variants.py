"""The effect of a torch recipe's call and parameters on an operator's plan: forms, layouts, weights,
buffers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from opatlas.identity.operator import Operator
from opatlas.load.torch.forms import FORMS, reformed
from opatlas.load.torch.graph import GraphPlan, Kept, Unsupported
from opatlas.load.torch.kept import kept as kept_step
from opatlas.load.torch.kept import kept_whole
from opatlas.load.torch.ops.endings import Ending, ending
from opatlas.load.torch.ops.site import TorchSite
from opatlas.load.torch.packed import OWN, mkl_product, onednn_call
from opatlas.load.torch.patterns import whole_call

CHANNELS_LAST = frozenset(
    ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "BatchNormalization", "Resize")
)
"""Nodes whose activation is converted to channels-last (4 and 5 dimensions only)."""

Known = dict[int, torch.Tensor]
Function = Callable[..., Any]


def plan(operator: Operator, known: Mapping[int, torch.Tensor], recipe: Mapping[str, Any]) -> GraphPlan:
    """The operator's plan with the recipe's calls, layout, weights and buffers; call it in inference mode.
    Raises :class:`Unsupported` if the operator cannot have what the recipe asks for."""
    kept: Known = dict(known)
    replace: dict[int, Any] = {}
    endings: dict[int, Ending] = {}
    keep = recipe.get("buffers") == "kept"
    for position, node in enumerate(operator.nodes):
        site = TorchSite(operator, node, kept)
        if recipe["call"] == "onednn" and node.op in OWN["onednn"]:
            end = ending(operator, position) if recipe["epilogue"] == "fused" else None
            if end is not None:
                endings[position] = end
            replace[position] = onednn_call(site, kept, recipe["weights"] == "packed", end)
        elif recipe["call"] == "mkl" and node.op in OWN["mkl"]:
            replace[position] = mkl_product(site, kept)
        elif recipe.get("weights") == "transposed" and node.op in ("MatMul", "Gemm"):
            _store_transposed(site, kept)
    if recipe["call"] != "eager" and not replace:
        raise Unsupported(f"{' + '.join(operator.op_types)} has no call of {recipe['call']}")
    if recipe.get("epilogue") == "fused" and not endings:
        raise Unsupported(f"{' + '.join(operator.op_types)} has nothing that could be fused")
    if recipe.get("form", "plain") != "plain":
        _reform(operator, kept, replace, recipe["form"], keep)
    if recipe.get("layout") == "channels_last":
        _turn_to_channels_last(operator, kept, replace)
    if recipe["call"] == "onednn" and recipe["weights"] == "packed":
        _forget_packed(operator, kept, replace)
    made = GraphPlan(operator, kept, replace=replace)
    whole = None if replace else whole_call(operator)
    if whole is not None:
        function, takes = whole
        made.use_whole_call((kept_whole(function) if keep else None) or function, takes)
    elif keep:
        _keep_outputs(operator, kept, made, replace)
    if endings:
        _fuse(operator, made, endings)
    return made


def _reform(operator: Operator, kept: Known, replace: dict[int, Any], form: str, keep: bool) -> None:
    for position, node in enumerate(operator.nodes):
        made = reformed(TorchSite(operator, node, kept), form, keep)
        if made is not None:
            replace[position] = made
    if not replace:
        raise Unsupported(f"form {form} is for {', '.join(FORMS[form])}")


def _keep_outputs(operator: Operator, kept: Known, made: GraphPlan, replace: Mapping[int, Any]) -> None:
    """Each step that can writes into a kept buffer. Steps that move no data stay as they are: an output among
    them is copied into a kept buffer (:mod:`opatlas.load.torch.recipe`)."""
    for position, (function, takes, makes) in enumerate(made.steps):
        if position in replace:
            continue
        into = kept_step(TorchSite(operator, operator.nodes[position], kept), function)
        if into is not None:
            made.steps[position] = (into, takes, makes)


def _fuse(operator: Operator, made: GraphPlan, endings: Mapping[int, Ending]) -> None:
    """One step instead of each product and the nodes after it, at the place of the last."""
    steps: list[Any] = list(made.steps)
    for position, end in endings.items():
        function, takes, _ = steps[position]
        takes = (*takes, -1 if end.bias is None else end.bias, -1)[:3]
        for one in end.positions:
            steps[one] = None
        last = end.positions[-1]
        other = () if end.other is None else (end.other,)
        steps[last] = (function, (*takes, *other), operator.nodes[last].outputs)
    made.steps = [step for step in steps if step is not None]


def _forget_packed(operator: Operator, kept: Known, replace: Mapping[int, Any]) -> None:
    """Drop weights that are kept in packed form, so that they do not take memory twice."""
    packed = {
        operator.nodes[position].inputs[1]
        for position in replace
        if operator.nodes[position].op in OWN["onednn"] and operator.nodes[position].inputs[1] in kept
    }
    for number in packed:
        uses = [node for node in operator.nodes if number in node.inputs]
        if len(uses) == 1 and uses[0].inputs.count(number) == 1:
            del kept[number]


def _store_transposed(site: TorchSite, kept: Known) -> None:
    number = site.node.inputs[1]
    if number not in kept:
        raise Unsupported(f"transposed weights for a {site.node.op} whose weights come with every run")
    weight = kept[number]
    if weight.ndim > 1:
        turned = weight.transpose(-1, -2)
        # The same values and the same meaning; only the memory runs the other way.
        other = weight.is_contiguous()
        kept[number] = turned.contiguous().transpose(-1, -2) if other else weight.contiguous()


def _turn_to_channels_last(operator: Operator, kept: Known, replace: dict[int, Any]) -> None:
    """Convert constant weights once, now; activations in every run, unless they already are."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    plain = GraphPlan(operator, kept, replace=replace)
    for position, node in enumerate(operator.nodes):
        memory = formats.get(len(operator.value(node.inputs[0]).shape))
        if node.op not in CHANNELS_LAST or memory is None:
            continue
        if node.op in ("Conv", "ConvTranspose") and node.inputs[1] in kept and position not in replace:
            kept[node.inputs[1]] = kept[node.inputs[1]].contiguous(memory_format=memory)
        replace[position] = _on_turned_activation(plain.steps[position][0], memory)


def _on_turned_activation(function: Function | Kept, memory: torch.memory_format) -> Function:
    if isinstance(function, Kept):
        raise Unsupported("a form with kept buffers in another layout")

    def run(x: torch.Tensor, *others: Any) -> Any:
        return function(x.contiguous(memory_format=memory), *others)

    return run
