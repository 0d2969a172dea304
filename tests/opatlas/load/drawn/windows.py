"""Sliding windows: convolutions, pools; and what samples images: Resize, GridSample."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.opatlas.load.drawn.draw import Draw, int64s
from tests.opatlas.load.drawn.elements import Drawn
from tests.opatlas.load.operators import Case


def _window(d: Draw, kernel: list[int], dilated: bool = True) -> dict[str, Any]:
    """Strides, dilations and one of the ways to say the padding."""
    attrs: dict[str, Any] = {}
    if d.flag():
        attrs["strides"] = [d.whole(1, 3) for _ in kernel]
    if dilated and d.whole(0, 2) == 0:
        attrs["dilations"] = [d.whole(1, 2) for _ in kernel]
    how = d.pick("", "pads", "pads", "same", "VALID")
    if how == "pads":
        attrs["pads"] = [d.whole(0, size - 1) for size in kernel * 2]
    elif how == "same":
        attrs["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER")
        attrs.pop("dilations", None)  # which ONNX Runtime refuses beside it
    elif how:
        attrs["auto_pad"] = how
    return attrs


def _conv(d: Draw) -> Case:
    spatial, groups = d.whole(1, 3), d.whole(1, 2)
    kernel = [d.whole(1, 3) for _ in range(spatial)]
    each, filters = d.whole(1, 3), groups * d.whole(1, 2)
    sizes = [d.whole(5, 8) if spatial < 3 else 5 for _ in range(spatial)]
    x, w = d.normal(d.whole(1, 2), groups * each, *sizes), d.normal(filters, each, *kernel)
    bias = [d.normal(filters)] if d.flag() else []
    return Case("Conv", [x, w, *bias], {"group": groups, **_window(d, kernel)}, fixed=[1] if d.flag() else [])


def _conv_transpose(d: Draw) -> Case:
    spatial, groups = d.whole(1, 3), d.whole(1, 2)
    kernel = [d.whole(1, 3) for _ in range(spatial)]
    each, filters = d.whole(1, 3), d.whole(1, 2)
    strides = [d.whole(1, 3) for _ in kernel]
    x = d.normal(d.whole(1, 2), groups * each, *(d.whole(2, 5) for _ in kernel))
    w = d.normal(groups * each, filters, *kernel)
    attrs: dict[str, Any] = {"group": groups, "strides": strides}
    if d.flag():
        attrs["dilations"] = [d.whole(1, 2) for _ in kernel]
    how = d.pick("", "pads", "same", "shape")
    if how == "pads":
        attrs["pads"] = [d.whole(0, size - 1) if size > 1 else 0 for size in kernel * 2]
    elif how == "same":
        attrs["auto_pad"] = d.pick("SAME_UPPER", "SAME_LOWER")
        attrs.pop("dilations", None)
    if how in ("", "pads") and d.flag():
        attrs["output_padding"] = [d.whole(0, step - 1) for step in strides]
    if how == "shape":
        attrs.pop("dilations", None)
        attrs["output_shape"] = [
            size * step + d.whole(-1, 1) for size, step in zip(x.shape[2:], strides, strict=True)
        ]
    bias = [d.normal(groups * filters)] if d.flag() else []
    return Case("ConvTranspose", [x, w, *bias], attrs, fixed=[1] if d.flag() else [])


def _pool(op: str) -> Drawn:
    def draw(d: Draw) -> Case:
        spatial = d.whole(1, 3)
        kernel = [d.whole(1, 3) for _ in range(spatial)]
        attrs = {"kernel_shape": kernel, **_window(d, kernel)}
        if d.flag():
            attrs["ceil_mode"] = d.flag()
        x = d.normal(d.whole(1, 2), d.whole(1, 3), *(d.whole(5, 8) for _ in kernel))
        if op == "AveragePool" and d.flag():
            attrs["count_include_pad"] = 1
        if op == "LpPool":
            attrs["p"] = d.whole(1, 3)
        outputs = 1
        if op == "MaxPool":
            x = d.distinct(*x.shape)
            if d.whole(0, 3) == 0:
                x = d.integers(*x.shape, dtype=d.pick("int8", "uint8"))
            elif d.whole(0, 2) == 0:
                outputs, attrs["storage_order"] = 2, d.flag()
        return Case(op, [x], attrs, outputs=outputs)

    return draw


def _global(op: str) -> Drawn:
    return lambda d: Case(op, [d.normal(d.whole(1, 2), d.whole(1, 3), *d.shape(1, 3))])


PLACES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
    "asymmetric", "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _resize(d: Draw) -> Case:
    spatial = d.pick(1, 2, 2, 3)
    shape = (d.whole(1, 2), d.whole(1, 2), *(d.whole(2, 7) for _ in range(spatial)))
    mode = d.pick("nearest", "linear", "cubic") if spatial == 2 else d.pick("nearest", "linear")
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": d.pick(*PLACES)}
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick(*ROUNDINGS)
    if mode == "cubic":
        attrs["cubic_coeff_a"] = d.pick(-0.5, -0.75)
    if mode != "nearest" and d.flag():
        attrs["exclude_outside"] = 1
    crop = attrs["coordinate_transformation_mode"] == "tf_crop_and_resize"
    if mode != "nearest" and not crop and d.flag():
        attrs["antialias"] = 1
    axes = list(range(2, len(shape))) if d.flag() else None
    of = list(range(len(shape))) if axes is None else axes
    if axes is not None:
        attrs["axes"] = axes
    scales = sizes = None
    if d.flag():
        scales = np.array([1.0 if i < 2 else d.pick(0.6, 1.7, 2.0, 0.5, 1.3) for i in of], np.float32)
    else:
        sizes = int64s([shape[i] if i < 2 else d.whole(1, 9) for i in of])
        if axes is not None and d.flag():
            attrs["keep_aspect_ratio_policy"] = d.pick("not_larger", "not_smaller")
    region = None
    if crop:
        starts = [0.0 if i < 2 else d.pick(0.0, 0.2, -0.1) for i in of]
        ends = [1.0 if i < 2 else d.pick(1.0, 0.7, 1.2) for i in of]
        region = np.array(starts + ends, np.float32)
        attrs["extrapolation_value"] = d.pick(0.0, 7.0)
    x = d.normal(*shape, dtype="float32")
    if d.whole(0, 3) == 0:
        dtype = d.pick("uint8", "int8", "int32")
        x = d.integers(*shape, low=-100, high=120, dtype=dtype)
    return Case("Resize", [x, region, scales, sizes], attrs, fixed=[1, 2, 3])


def _grid_sample(d: Draw) -> Case:
    spatial = d.pick(2, 2, 3)
    sizes = [d.whole(2, 5) for _ in range(spatial)]
    x = d.normal(d.whole(1, 2), d.whole(1, 2), *sizes)
    grid = d.inside(x.shape[0], *(d.whole(1, 4) for _ in range(spatial)), spatial, reach=1.4)
    attrs: dict[str, Any] = {"mode": d.pick("linear", "nearest", *(["cubic"] if spatial == 2 else []))}
    attrs |= {"padding_mode": d.pick("zeros", "border", "reflection")} if d.flag() else {}
    attrs |= {"align_corners": d.flag()} if d.flag() else {}
    return Case("GridSample", [x, grid], attrs)


DRAWS: dict[str, Drawn] = {
    **{op: _pool(op) for op in ("AveragePool", "LpPool", "MaxPool")},
    **{op: _global(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "GridSample": _grid_sample,
    "Resize": _resize,
}
