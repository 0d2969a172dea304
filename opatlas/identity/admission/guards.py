"""What must hold before ONNX's inference is asked: it is C++, and some of it divides by what it is given, or
counts with it, before it looks. A ``GatherND`` with a ``batch_dims`` of -2147483648 ends the process."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from opatlas.identity.admission.fitting import FITTING
from opatlas.identity.admission.numbers import ints, positive_inputs
from opatlas.identity.admission.ranks import RANKS
from opatlas.identity.admission.words import FLAGS, WORDS
from opatlas.identity.bounds import MAX_DIM, refuse, shown
from opatlas.identity.dtypes import CODES, NAMES, long_float
from opatlas.identity.operator import OPSET, Value
from opatlas.identity.schema import find
from opatlas.identity.statics import REDUCTIONS, STATIC
from opatlas.identity.workbench import NodeStep, Workbench

AT_LEAST_ONE = frozenset(
    {
        "blocksize", "dilations", "group", "hidden_size", "kernel_shape", "kv_num_heads", "num_groups",
        "num_outputs", "offset_group", "output_height", "output_width", "p", "pooled_shape", "q_num_heads",
        "size", "strides",
    }
)  # fmt: skip
NOT_NEGATIVE = frozenset({"block_size", "num_heads", "rotary_embedding_dim", "sampling_ratio"})
ELEMENT_TYPES = frozenset(
    {"to", "dtype", "output_dtype", "output_datatype", "stash_type", "softmax_precision"}
)

# Operator type → how many axes there are beyond the first input's rank, for ``axis`` and ``axes``.
_EXTRA_AXES = {"OneHot": 1}
_LIMIT = MAX_DIM


def check_before(step: NodeStep, work: Workbench) -> None:
    """Refuse attributes, static inputs and ranks that no operator of this type can have."""
    for name, value in step.attrs.items():
        _attribute(step, name, value)
    _ranks(step, work)
    _axes(step, work)
    for position in STATIC.get(step.op, {}):
        if step.input(position):
            _static(step, position, work.value(step.input(position)))
    if step.op in _GUARDS:
        _GUARDS[step.op](step, work)


def _attribute(step: NodeStep, name: str, value: object) -> None:
    numbers = value if isinstance(value, tuple) else (value,)
    schema = find(step.op, OPSET)
    kind = schema.attributes[name].kind if schema and name in schema.attributes else ""
    words = WORDS.get((step.op, name))
    if words is not None:
        known = ", ".join(words)
        step.need(set(numbers) <= set(words), f"{name} must be one of {known}, not {shown(value)}")
    if kind not in ("INT", "INTS"):
        return
    if name in FLAGS:
        step.need(value in (0, 1), f"{name} must be 0 or 1")
    if name in ELEMENT_TYPES:
        codes = set(numbers) - ({0} if name != "to" else set())
        step.need(codes <= set(NAMES), f"{name} must be an element type's code, such as {CODES['float32']}")
        return
    step.need(all(abs(number) <= _LIMIT for number in numbers), f"{name} must be at most {_LIMIT}")
    if name in AT_LEAST_ONE:
        step.need(all(number >= 1 for number in numbers), f"{name} must be at least 1")
    if name in NOT_NEGATIVE:
        step.need(all(number >= 0 for number in numbers), f"{name} must not be negative")


def _ranks(step: NodeStep, work: Workbench) -> None:
    for position, allowed in RANKS.get(step.op, {}).items():
        if step.input(position):
            rank = len(work.value(step.input(position)).shape)
            step.need(rank in allowed, f"input {position} must have {_words(allowed)} dimensions, not {rank}")


def _words(allowed: Iterable[int]) -> str:
    numbers = sorted(allowed)
    if len(numbers) > 2 and numbers[-1] >= 8:
        return f"{numbers[0]} or more"
    return " or ".join(map(str, numbers))


def _axes(step: NodeStep, work: Workbench) -> None:
    if not step.inputs or not step.inputs[0]:
        return
    rank = len(work.shape(step)) + _EXTRA_AXES.get(step.op, 0)
    for name in ("axis", "axes", "batch_axis", "time_axis"):
        if name not in step.attrs:
            continue
        value = step.attrs[name]
        if step.op in ("QuantizeLinear", "DequantizeLinear") and not work.shape(step, 1):
            continue  # one scale for the whole tensor: the axis is not read
        top = rank + 1 if step.op == "Flatten" else rank
        axes = value if isinstance(value, tuple) else (value,)
        for axis in axes:
            step.need(-rank <= axis < top, f"axis {axis} is outside the {rank} dimensions of its input")
        step.need(
            len({axis % rank for axis in axes if rank}) in (len(axes), 0), f"{name} names an axis twice"
        )


def _static(step: NodeStep, position: int, value: Value) -> None:
    word = STATIC[step.op][position]
    items = value.data or ()
    if value.dtype.startswith(("int", "uint")):
        step.need(all(abs(int(item)) <= _LIMIT for item in items), f"{word} must be at most {_LIMIT}")
    if len(value.shape) > 1 and (step.op, word) != ("Resize", "roi"):
        refuse(f"{step.op}: {word} must have one dimension, not {len(value.shape)}.")


# ---- static inputs ----------------------------------------------------------------------------------


def _check_axes(step: NodeStep, axes: list[int], rank: int) -> None:
    for axis in axes:
        step.need(-rank <= axis < rank, f"axis {axis} is outside {rank} dimensions")
    step.need(len({axis % rank for axis in axes if rank}) == len(axes), "axes name one of them twice")


def _axes_input(position: int) -> Callable[[NodeStep, Workbench], None]:
    def check(step: NodeStep, work: Workbench) -> None:
        axes = ints(step, work, position)
        if axes is not None:
            _check_axes(step, axes, len(work.shape(step)))

    return check


def _unsqueeze(step: NodeStep, work: Workbench) -> None:
    axes = ints(step, work, 1) or []
    _check_axes(step, axes, len(work.shape(step)) + len(axes))


def _slice(step: NodeStep, work: Workbench) -> None:
    starts, ends = ints(step, work, 1) or [], ints(step, work, 2) or []
    axes, steps = ints(step, work, 3), ints(step, work, 4)
    rank = len(work.shape(step))
    step.need(len(starts) == len(ends), f"{len(starts)} starts do not go with {len(ends)} ends")
    for name, given in (("axes", axes), ("steps", steps)):
        if given is not None:
            step.need(len(given) == len(starts), f"{len(starts)} starts do not go with {len(given)} {name}")
    _check_axes(step, list(range(len(starts))) if axes is None else axes, rank)
    step.need(0 not in (steps or [1]), "a step must not be 0")


def _pad(step: NodeStep, work: Workbench) -> None:
    pads, axes = ints(step, work, 1) or [], ints(step, work, 3)
    rank = len(work.shape(step))
    _check_axes(step, list(range(rank)) if axes is None else axes, rank)
    wanted = 2 * (rank if axes is None else len(axes))
    step.need(len(pads) == wanted, f"pads must have {wanted} numbers, two for each axis, not {len(pads)}")
    filler = work.static(step, 2, "constant_value")
    step.need(filler is None or len(filler.data or ()) == 1, "constant_value must be one number")


def _split(step: NodeStep, work: Workbench) -> None:
    parts, made = ints(step, work, 1), len(step.outputs)
    axis = step.attrs.get("axis", 0)
    whole = work.shape(step)[axis] if work.shape(step) else 0
    number = step.attrs.get("num_outputs")
    if parts is None:
        step.need(number in (made, None), f"num_outputs {number} does not go with {made} outputs")
        return
    step.need(number is None, "give the parts' sizes or num_outputs, not both")
    step.need(len(parts) == made, f"{len(parts)} sizes do not go with {made} outputs")
    step.need(all(part >= 1 for part in parts), "every part must be at least 1")
    step.need(sum(parts) == whole, f"parts of {parts} do not add up to the dimension of {whole}")


def _stft(step: NodeStep, work: Workbench) -> None:
    positive_inputs(step, work)
    for position in (1, 3):
        numbers = ints(step, work, position)
        step.need(numbers is None or len(numbers) == 1, f"{STATIC['STFT'][position]} must be one number")


def _tile(step: NodeStep, work: Workbench) -> None:
    repeats = ints(step, work, 1) or []
    rank = len(work.shape(step))
    step.need(len(repeats) == rank, f"repeats must have {rank} numbers, not {len(repeats)}")
    step.need(all(repeat >= 1 for repeat in repeats), "repeats must be at least 1")


def _dft(step: NodeStep, work: Workbench) -> None:
    length, axis = ints(step, work, 1), ints(step, work, 2)
    rank, parts = len(work.shape(step)), work.shape(step)[-1]
    step.need(parts in (1, 2), f"the last dimension must be 1 (real) or 2 (complex), not {parts}")
    step.need(length is None or (len(length) == 1 and length[0] >= 1), "dft_length must be at least 1")
    # The last axis holds real and imaginary parts.
    step.need(
        axis is None or (len(axis) == 1 and -rank <= axis[0] < rank - 1), "axis must name a signal axis"
    )


def _range(step: NodeStep, work: Workbench) -> None:
    numbers = []
    for position, word in STATIC["Range"].items():
        value = work.static(step, position, word)
        items = () if value is None else value.data or ()
        step.need(len(items) == 1, f"{word} must be one number")
        numbers.append(float(long_float(items[0])) if not isinstance(items[0], bool) else 0.0)
    step.need(all(math.isfinite(number) for number in numbers), "start, limit and delta must be finite")
    start, limit, delta = numbers
    step.need(delta != 0, "delta must not be 0")
    step.need((limit - start) / delta <= _LIMIT, f"it would make more than {_LIMIT} elements")


def _resize(step: NodeStep, work: Workbench) -> None:
    rank = len(work.shape(step))
    count = len(step.attrs.get("axes", range(rank)))
    scales, sizes = work.static(step, 2, "scales"), ints(step, work, 3)
    step.need((scales is None) != (sizes is None), "exactly one of scales and sizes must be given")
    if scales is not None:
        numbers = [long_float(item) for item in scales.data or () if not isinstance(item, bool)]
        step.need(len(numbers) == count, f"scales must have {count} numbers, not {len(numbers)}")
        step.need(all(0 < number <= 2**20 for number in numbers), "scales must be above 0 and at most 2^20")
    if sizes is not None:
        step.need(len(sizes) == count, f"sizes must have {count} numbers, not {len(sizes)}")
        step.need(all(size >= 1 for size in sizes), "sizes must be at least 1")
    crop = step.attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    region = work.static(step, 1, "roi")
    if crop:
        step.need(
            region is not None and len(region.data or ()) == 2 * count, f"roi must have {2 * count} numbers"
        )


def _center_crop_pad(step: NodeStep, work: Workbench) -> None:
    sizes = ints(step, work, 1) or []
    count = len(step.attrs.get("axes", work.shape(step)))
    step.need(len(sizes) == count, f"shape must have {count} numbers, not {len(sizes)}")
    step.need(all(size >= 1 for size in sizes), "shape must be at least 1 everywhere")


def _gather_nd(step: NodeStep, work: Workbench) -> None:
    data, indices = len(work.shape(step)), len(work.shape(step, 1))
    batch = step.attrs.get("batch_dims", 0)
    step.need(data >= 1 and indices >= 1, "both inputs need at least one dimension")
    step.need(0 <= batch < min(data, indices), f"batch_dims must be from 0 to {min(data, indices) - 1}")
    depth = work.shape(step, 1)[-1]
    step.need(depth <= data - batch, f"an index of {depth} numbers is too long for {data - batch} dimensions")


def _transpose(step: NodeStep, work: Workbench) -> None:
    rank = len(work.shape(step))
    perm = step.attrs.get("perm", tuple(range(rank)))
    step.need(sorted(perm) == list(range(rank)), f"perm must order the axes 0 to {rank - 1}")


def _attention(step: NodeStep, work: Workbench) -> None:
    shapes = [work.shape(step, position) for position in range(3)]
    query, keys, values = shapes
    flat = len(query) == 3
    step.need(
        len({len(shape) for shape in shapes}) == 1, "Q, K and V must have the same number of dimensions"
    )
    for name in ("q_num_heads", "kv_num_heads"):
        step.need(not flat or name in step.attrs, f"{name} must be given for inputs of three dimensions")
    heads = (step.attrs["q_num_heads"], step.attrs["kv_num_heads"]) if flat else (query[1], keys[1])
    step.need(heads[0] % heads[1] == 0, f"{heads[0]} query heads do not divide by {heads[1]} key heads")
    step.need(len({shape[0] for shape in shapes}) == 1, "Q, K and V must have the same batch size")
    step.need(keys[-2] == values[-2], f"{keys[-2]} keys do not go with {values[-2]} values")
    if flat:
        even = all(shape[2] % count == 0 for shape, count in zip(shapes, (*heads, heads[1]), strict=True))
        step.need(even, "the last dimension of Q, K and V must divide by their heads")
    width = query[-1] // heads[0] == keys[-1] // heads[1] if flat else query[-1] == keys[-1]
    step.need(width, "Q and K must have heads of the same size")
    step.need(flat or keys[1] == values[1], "K and V must have the same number of heads")


def _einsum(step: NodeStep, work: Workbench) -> None:
    equation = str(step.attrs.get("equation", "")).replace(" ", "")
    term = r"[a-zA-Z]*(\.\.\.)?[a-zA-Z]*"
    step.need(
        re.fullmatch(rf"{term}(,{term})*(->{term})?", equation) is not None,
        "equation must be letters, commas, '...' and '->', such as 'ij,jk->ik'",
    )
    left, _, right = equation.partition("->")
    terms = left.split(",")
    step.need(len(terms) == len(step.inputs), f"equation names {len(terms)} inputs, not {len(step.inputs)}")
    sizes: dict[str, int] = {}
    for position, words in enumerate(terms):
        shape = work.shape(step, position)
        letters = words.replace("...", "")
        dots = "..." in words
        step.need(
            len(letters) == len(shape) or (dots and len(letters) < len(shape)),
            f"'{words}' does not fit input {position} of {len(shape)} dimensions",
        )
        head = words.split("...")[0] if dots else words
        tail = words.split("...")[1] if dots else ""
        pairs = [*zip(head, shape, strict=False), *zip(reversed(tail), reversed(shape), strict=False)]
        for letter, dim in pairs:
            step.need(
                sizes.setdefault(letter, dim) == dim, f"'{letter}' stands for {sizes[letter]} and {dim}"
            )
    written = right.replace("...", "")
    step.need(set(written) <= set(sizes), "every letter of the output must be one of an input's")
    step.need(len(set(written)) == len(written), "the output names a letter twice")


_GUARDS: dict[str, Callable[[NodeStep, Workbench], None]] = {
    "Attention": _attention,
    "CenterCropPad": _center_crop_pad,
    "Col2Im": positive_inputs,
    "ConstantOfShape": positive_inputs,
    "DFT": _dft,
    "Einsum": _einsum,
    "Expand": positive_inputs,
    "GatherND": _gather_nd,
    "MelWeightMatrix": positive_inputs,
    "OneHot": positive_inputs,
    "Pad": _pad,
    "Range": _range,
    "Resize": _resize,
    "STFT": _stft,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _axes_input(1),
    "Tile": _tile,
    "TopK": positive_inputs,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    **{reduction: _axes_input(1) for reduction in REDUCTIONS},
    **FITTING,
}
