"""Types whose inputs must fit one another: recurrent ones, windows, regions, indices. ONNX's inference looks
at few of them. What it lets pass, each library would try and refuse in its own words."""

from __future__ import annotations

from collections.abc import Callable

from opatlas.identity.admission.numbers import ints, positive_inputs
from opatlas.identity.workbench import NodeStep, Workbench


def _affine_grid(step: NodeStep, work: Workbench) -> None:
    positive_inputs(step, work)
    size = ints(step, work, 1) or []
    ends = bool(step.attrs.get("align_corners"))
    step.need(
        not (ends and 1 in size[2:]),
        "with align_corners every dimension of the image must be at least 2: one place has no two ends",
    )


def _window(step: NodeStep, work: Workbench) -> None:
    positive_inputs(step, work)
    alone = ints(step, work, 0) == [1] and not step.attrs.get("periodic", 1)
    step.need(not alone, "a window of size 1 must be periodic: the other kind divides by 0")


def _recurrent(step: NodeStep, work: Workbench) -> None:
    """Shapes, and that each activation has what it needs; tensors come time first here."""
    gates, kinds = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[step.op]
    directions = 2 if step.attrs["direction"] == "bidirectional" else 1
    (_, batch, width), hidden = work.shape(step), step.attrs.get("hidden_size", 0)
    wanted = {
        1: ("W", (directions, gates * hidden, width)),
        2: ("R", (directions, gates * hidden, hidden)),
        3: ("B", (directions, 2 * gates * hidden)),
        4: ("sequence_lens", (batch,)),
        5: ("initial_h", (directions, batch, hidden)),
        6: ("initial_c", (directions, batch, hidden)),
        7: ("P", (directions, 3 * hidden)),
    }
    for position, (name, shape) in wanted.items():
        if step.input(position):
            given = work.shape(step, position)
            step.need(given == shape, f"{name} must have shape {list(shape)}, not {list(given)}")
    names = step.attrs.get("activations")
    if names is not None:
        count = kinds * directions
        step.need(len(names) >= count, f"activations must be {count} names, not {len(names)}")
    scaled = (names or ()).count("ScaledTanh")
    for numbers in ("activation_alpha", "activation_beta"):
        enough = not scaled or len(step.attrs.get(numbers, ())) >= scaled
        step.need(enough, f"ScaledTanh needs its {numbers}, for which ONNX has no default")


def _max_unpool(step: NodeStep, work: Workbench) -> None:
    positive_inputs(step, work)
    data, indices = work.shape(step), work.shape(step, 1)
    step.need(data == indices, f"the indices must have the data's shape {list(data)}, not {list(indices)}")
    sizes = ints(step, work, 2)
    if sizes is None:
        return
    kernel = step.attrs.get("kernel_shape", ())
    strides = step.attrs.get("strides", (1,) * len(kernel))
    pads = step.attrs.get("pads", (0,) * (2 * len(kernel)))
    rank = len(kernel)
    if len(data) == rank + 2 and len(strides) == rank and len(pads) == 2 * rank:
        made = [(data[2 + i] - 1) * strides[i] - pads[i] - pads[rank + i] + kernel[i] for i in range(rank)]
        step.need(
            sizes[2:] == made,
            f"output_shape must be the pool's own {[*data[:2], *made]}, or left out: of another size "
            f"implementations disagree where the indices point",
        )


def _regions(step: NodeStep, work: Workbench) -> None:
    columns = 4 if step.op == "RoiAlign" else 5
    boxes = work.shape(step, 1)
    step.need(boxes[-1] == columns, f"rois must have {columns} columns, not {boxes[-1]}")
    if step.op == "RoiAlign":
        images = work.shape(step, 2)
        step.need(images == boxes[:1], f"batch_indices must have shape [{boxes[0]}], not {list(images)}")
    step.need(step.attrs.get("spatial_scale", 1.0) > 0, "spatial_scale must be above 0")


def _scatter_nd(step: NodeStep, work: Workbench) -> None:
    data, indices, updates = (work.shape(step, position) for position in range(3))
    depth = indices[-1]
    step.need(depth <= len(data), f"an index of {depth} numbers is too long for {len(data)} dimensions")
    wanted = (*indices[:-1], *data[depth:])
    step.need(updates == wanted, f"updates must have shape {list(wanted)}, not {list(updates)}")


def _by_element(step: NodeStep, work: Workbench) -> None:
    data, indices = work.shape(step), work.shape(step, 1)
    rank = len(data)
    step.need(
        len(indices) == rank >= 1,
        f"data and indices must have the same number of dimensions, not {rank} and {len(indices)}",
    )
    axis = step.attrs.get("axis", 0) % rank
    fits = all(
        at == axis or given <= size for at, (given, size) in enumerate(zip(indices, data, strict=True))
    )
    step.need(fits, f"indices {list(indices)} reach beyond data {list(data)} on another axis than {axis}")
    if step.op == "ScatterElements":
        updates = work.shape(step, 2)
        step.need(updates == indices, f"updates must have shape {list(indices)}, not {list(updates)}")


def _reverse_sequence(step: NodeStep, work: Workbench) -> None:
    data, lengths = work.shape(step), work.shape(step, 1)
    axis = step.attrs.get("batch_axis", 1)
    step.need(axis in (0, 1), f"batch_axis must be 0 or 1, not {axis}")
    batch = data[axis]
    step.need(lengths == (batch,), f"sequence_lens must have shape [{batch}], not {list(lengths)}")


def _loss(step: NodeStep, work: Workbench) -> None:
    scores, target = work.shape(step), work.shape(step, 1)
    wanted = (scores[0], *scores[2:])
    step.need(target == wanted, f"the target must have shape {list(wanted)}, not {list(target)}")


FITTING: dict[str, Callable[[NodeStep, Workbench], None]] = {
    "AffineGrid": _affine_grid,
    "BlackmanWindow": _window,
    "GRU": _recurrent,
    "GatherElements": _by_element,
    "HammingWindow": _window,
    "HannWindow": _window,
    "LSTM": _recurrent,
    "MaxRoiPool": _regions,
    "MaxUnpool": _max_unpool,
    "NegativeLogLikelihoodLoss": _loss,
    "RNN": _recurrent,
    "ReverseSequence": _reverse_sequence,
    "RoiAlign": _regions,
    "ScatterElements": _by_element,
    "ScatterND": _scatter_nd,
    "SoftmaxCrossEntropyLoss": _loss,
}
