"""Attributes that choose: which words, and which flags, ONNX knows. Its inference does not look at them."""

from __future__ import annotations

_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
_REDUCTIONS = ("none", "add", "mul", "max", "min")
_DIRECTIONS = ("forward", "reverse", "bidirectional")
_LOSSES = ("none", "sum", "mean")
_ACTIVATIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
)  # fmt: skip

WORDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("AveragePool", "auto_pad"): _PADS,
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("Conv", "auto_pad"): _PADS,
    ("ConvInteger", "auto_pad"): _PADS,
    ("ConvTranspose", "auto_pad"): _PADS,
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("GRU", "activations"): _ACTIVATIONS,
    ("GRU", "direction"): _DIRECTIONS,
    ("Gelu", "approximate"): ("none", "tanh"),
    ("GridSample", "mode"): ("linear", "nearest", "cubic"),
    ("GridSample", "padding_mode"): ("zeros", "border", "reflection"),
    ("LSTM", "activations"): _ACTIVATIONS,
    ("LSTM", "direction"): _DIRECTIONS,
    ("LpPool", "auto_pad"): _PADS,
    ("MaxPool", "auto_pad"): _PADS,
    ("NegativeLogLikelihoodLoss", "reduction"): _LOSSES,
    ("Pad", "mode"): ("constant", "reflect", "edge", "wrap"),
    ("QLinearConv", "auto_pad"): _PADS,
    ("RNN", "activations"): _ACTIVATIONS,
    ("RNN", "direction"): _DIRECTIONS,
    ("Resize", "coordinate_transformation_mode"): (
        "half_pixel",
        "half_pixel_symmetric",
        "pytorch_half_pixel",
        "align_corners",
        "asymmetric",
        "tf_crop_and_resize",
    ),
    ("Resize", "keep_aspect_ratio_policy"): ("stretch", "not_larger", "not_smaller"),
    ("Resize", "mode"): ("nearest", "linear", "cubic"),
    ("Resize", "nearest_mode"): ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    ("RoiAlign", "coordinate_transformation_mode"): ("half_pixel", "output_half_pixel"),
    ("RoiAlign", "mode"): ("avg", "max"),
    ("ScatterElements", "reduction"): _REDUCTIONS,
    ("ScatterND", "reduction"): _REDUCTIONS,
    ("SoftmaxCrossEntropyLoss", "reduction"): _LOSSES,
}
"""(operator type, attribute) → the words it may be, at the canonical opset."""

FLAGS = frozenset(
    {
        "align_corners", "allowzero", "antialias", "ceil_mode", "count_include_pad", "detect_negative",
        "detect_positive", "exclude_outside", "exclusive", "fmod", "input_forget", "interleaved",
        "inverse", "is_causal", "keepdims", "largest", "layout", "linear_before_reset",
        "noop_with_empty_axes", "onesided", "periodic", "reverse", "saturate", "select_last_index",
        "sorted", "storage_order", "training_mode", "transA", "transB", "upper",
    }
)  # fmt: skip
"""Attributes that are 0 or 1."""
