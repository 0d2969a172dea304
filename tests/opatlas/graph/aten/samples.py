"""Small calls of every aten operator that has a rule: ``op``, tensor arguments by name, other arguments.

A tensor is ``"float32 2 3"`` (dtype and shape), ``"int64 4 <10"`` (values below 10), ``"float32 3 >0"``
(positive values), ``"float32 4 6 ~6"`` (stored transposed: strides of its own).
"""

from __future__ import annotations

from typing import Any

F = "float32"

UNARY = [
    "relu", "sigmoid", "tanh", "erf", "exp", "abs", "neg", "sign", "sgn", "floor", "ceil", "round", "sin",
    "cos", "tan", "atan", "sinh", "cosh", "reciprocal", "square", "silu", "mish", "selu", "hardswish",
    "hardsigmoid", "isnan", "isinf",
]  # fmt: skip
POSITIVE = ("log", "sqrt", "rsqrt")
IN_PLACE = ["relu", "sigmoid", "tanh", "exp", "silu", "abs", "neg", "hardswish"]

Sample = tuple[str, dict[str, Any], dict[str, Any]]


def samples() -> list[Sample]:
    return [
        *_matmul(), *_convolution(), *_normalization(), *_elementwise(), *_reduction(), *_pooling(),
        *_shaping(),
        *_indexing(),
    ]  # fmt: skip


def _matmul() -> list[Sample]:
    qkv = {"query": f"{F} 2 3 5 8", "key": f"{F} 2 3 7 8", "value": f"{F} 2 3 7 8"}
    return [
        ("mm", {"self": f"{F} 4 5", "mat2": f"{F} 5 6"}, {}),
        ("mm", {"self": f"{F} 4 5", "mat2": f"{F} 5 6 ~"}, {}),
        ("bmm", {"self": f"{F} 3 4 5", "mat2": f"{F} 3 5 6"}, {}),
        ("addmm", {"self": f"{F} 6", "mat1": f"{F} 4 5", "mat2": f"{F} 5 6 ~"}, {}),
        ("addmm", {"self": f"{F} 4 6", "mat1": f"{F} 4 5", "mat2": f"{F} 5 6"}, {"alpha": 0.5, "beta": 2}),
        (
            "baddbmm",
            {"self": f"{F} 3 4 6", "batch1": f"{F} 3 4 5", "batch2": f"{F} 3 5 6"},
            {"alpha": 0.5, "beta": 2},
        ),
        ("baddbmm", {"self": f"{F} 4 6", "batch1": f"{F} 3 4 5", "batch2": f"{F} 3 5 6"}, {}),
        ("matmul", {"self": f"{F} 2 1 4 5", "other": f"{F} 3 5 6"}, {}),
        ("matmul", {"self": f"{F} 5", "other": f"{F} 3 5 6"}, {}),
        ("mv", {"self": f"{F} 4 5", "vec": f"{F} 5"}, {}),
        ("dot", {"self": f"{F} 5", "tensor": f"{F} 5"}, {}),
        ("linear", {"input": f"{F} 4 5", "weight": f"{F} 6 5", "bias": f"{F} 6"}, {}),
        ("linear", {"input": f"{F} 2 4 5", "weight": f"{F} 6 5", "bias": f"{F} 6"}, {}),
        ("linear", {"input": f"{F} 2 4 5", "weight": f"{F} 6 5"}, {}),
        ("scaled_dot_product_attention", qkv, {}),
        ("scaled_dot_product_attention", {**qkv, "attn_mask": f"{F} 5 7"}, {"scale": 0.3}),
    ]


def _convolution() -> list[Sample]:
    base = {"stride": [2, 1], "padding": [1, 2], "dilation": [1, 2]}
    x, w, b = f"{F} 2 6 9 11", f"{F} 8 3 3 3", f"{F} 8"
    turned = {"input": f"{F} 2 6 5 4", "weight": f"{F} 6 4 3 2", "bias": f"{F} 8"}
    return [
        ("convolution", {"input": x, "weight": w, "bias": b},
         {**base, "transposed": False, "output_padding": [0, 0], "groups": 2}),
        ("convolution", {"input": x, "weight": f"{F} 8 6 1 1"},
         {"stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
          "output_padding": [0, 0], "groups": 1}),
        ("convolution", {"input": f"{F} 2 6 9", "weight": f"{F} 6 1 3", "bias": f"{F} 6"},
         {"stride": [1], "padding": [1], "dilation": [1], "transposed": False,
          "output_padding": [0], "groups": 6}),
        ("convolution", turned,
         {"stride": [2, 3], "padding": [1, 0], "dilation": [1, 2], "transposed": True,
          "output_padding": [1, 1],
          "groups": 2}),
        ("conv1d", {"input": f"{F} 2 4 9", "weight": f"{F} 5 4 3", "bias": f"{F} 5"}, {"padding": [1]}),
        ("conv2d", {"input": x, "weight": w, "bias": b}, {**base, "groups": 2}),
        ("conv3d", {"input": f"{F} 1 2 5 6 7", "weight": f"{F} 3 2 2 3 1"}, {"stride": [1, 2, 1]}),
        ("conv_transpose1d", {"input": f"{F} 2 4 9", "weight": f"{F} 4 5 3"}, {"stride": [2]}),
        ("conv_transpose2d.input", turned, {"stride": [2, 2], "groups": 2, "dilation": [2, 1]}),
        ("conv_transpose3d.input",
         {"input": f"{F} 1 2 3 4 3", "weight": f"{F} 2 3 2 2 2"}, {"padding": [1, 0, 0]}),
    ]  # fmt: skip


def _normalization() -> list[Sample]:
    five = {"input": f"{F} 2 6 4 5", "weight": f"{F} 6", "bias": f"{F} 6", "running_mean": f"{F} 6",
            "running_var": f"{F} 6 >0"}  # fmt: skip
    bare = {name: five[name] for name in ("input", "running_mean", "running_var")}
    norm = {"input": f"{F} 2 3 8", "weight": f"{F} 8", "bias": f"{F} 8"}
    group = {"input": f"{F} 2 6 4 5", "weight": f"{F} 6", "bias": f"{F} 6"}
    return [
        ("native_batch_norm", five, {"training": False, "momentum": 0.1, "eps": 1e-3}),
        ("native_batch_norm", bare, {"training": False, "momentum": 0.1, "eps": 1e-5}),
        ("_native_batch_norm_legit_no_training", five, {"momentum": 0.1, "eps": 1e-5}),
        ("batch_norm", five, {"training": False, "momentum": 0.1, "eps": 1e-5, "cudnn_enabled": False}),
        ("native_layer_norm", norm, {"normalized_shape": [8], "eps": 1e-5}),
        ("native_layer_norm", {"input": f"{F} 2 3 8"}, {"normalized_shape": [3, 8], "eps": 1e-6}),
        ("layer_norm", norm, {"normalized_shape": [8]}),
        ("native_group_norm", group, {"N": 2, "C": 6, "HxW": 20, "group": 3, "eps": 1e-5}),
        ("group_norm", group, {"num_groups": 2}),
        ("_softmax", {"self": f"{F} 3 4 5"}, {"dim": -1, "half_to_float": False}),
        ("_softmax", {"self": f"{F} 3 4 5 ~"}, {"dim": 1, "half_to_float": False}),
        ("_log_softmax", {"self": f"{F} 3 4"}, {"dim": 1, "half_to_float": False}),
        ("softmax.int", {"self": f"{F} 3 4"}, {"dim": 0}),
        ("log_softmax.int", {"self": "float64 3 4"}, {"dim": 0, "dtype": "float32"}),
    ]


def _elementwise() -> list[Sample]:
    x, y, row, i, j = f"{F} 3 4", f"{F} 3 4", f"{F} 4", "int64 3 4 <9", "int64 3 4 >0"
    result: list[Sample] = [(name, {"self": x}, {}) for name in UNARY]
    result += [(f"{name}_", {"self": x}, {}) for name in IN_PLACE]
    result += [(name, {"self": f"{F} 3 4 >0"}, {}) for name in POSITIVE]
    result += [(name, {"self": f"{F} 3 4 |"}, {}) for name in ("asin", "acos")]
    result += [("sigmoid", {"self": i}, {}), ("bitwise_not", {"self": i}, {}),
               ("bitwise_not", {"self": "bool 5"}, {}),
               ("logical_not", {"self": x}, {}), ("relu6", {"self": x}, {})]  # fmt: skip
    for op in ("add", "sub", "mul", "div"):
        result += [(f"{op}.Tensor", {"self": x, "other": row}, {}),
                   (f"{op}_.Tensor", {"self": x, "other": row}, {}),
                   (f"{op}.Tensor", {"self": x}, {"other": 2.5}), (f"{op}.Scalar", {"self": x}, {"other": 3}),
                   (f"{op}.Tensor", {"self": i, "other": f"{F} 4"}, {}),
                   (f"{op}.Tensor", {"self": i, "other": j}, {}),
                   (f"{op}.Tensor", {"self": "float16 3 4", "other": f"{F} 1"}, {}),
                   (f"{op}.Tensor", {"self": "float16 3 4", "other": F}, {})]  # fmt: skip
    for op in ("eq", "ne", "lt", "le", "gt", "ge"):
        result += [(f"{op}.Tensor", {"self": i, "other": j}, {}), (f"{op}.Scalar", {"self": x}, {"other": 0})]
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        result += [(f"{op}.Tensor", {"self": i, "other": j}, {}),
                   (f"{op}.Tensor", {"self": "bool 4", "other": "bool 3 4"}, {}),
                   (f"{op}.Scalar", {"self": i}, {"other": 5})]  # fmt: skip
    for op in ("logical_and", "logical_or", "logical_xor"):
        result += [(op, {"self": "bool 3 4", "other": "bool 4"}, {})]
    for op in ("remainder", "fmod"):
        result += [(f"{op}.Scalar", {"self": i}, {"other": 4}),
                   (f"{op}.Tensor", {"self": "int64 3 4 -", "other": j}, {}),
                   (f"{op}.Scalar", {"self": x}, {"other": 0.7})]  # fmt: skip
    return [
        *result,
        ("add.Tensor", {"self": x, "other": y}, {"alpha": 0.5}),
        ("sub.Tensor", {"self": x, "other": row}, {"alpha": 2}),
        ("add_.Tensor", {"self": "int64"}, {"other": 1}), ("add.Scalar", {"self": i}, {"other": 1.5}),
        ("div.Tensor_mode", {"self": "int64 3 4 -", "other": j}, {"rounding_mode": "floor"}),
        ("floor_divide", {"self": "int64 3 4 -", "other": j}, {}),
        ("floor_divide", {"self": x, "other": row}, {}),
        ("rsub.Scalar", {"self": x}, {"other": 1}), ("rsub.Tensor", {"self": x, "other": y}, {"alpha": 2}),
        *[("pow.Tensor_Scalar", {"self": f"{F} 3 4 >0"}, {"exponent": e}) for e in (0.5, 1, 2, 3.0, -1, 1.7)],
        ("pow.Tensor_Tensor", {"self": f"{F} 3 4 >0", "exponent": row}, {}),
        ("pow.Scalar", {"exponent": x}, {"self": 2.0}),
        ("maximum", {"self": x, "other": row}, {}), ("minimum", {"self": x, "other": "float16 4"}, {}),
        ("clamp", {"self": i}, {"min": 2, "max": 5}), ("clamp", {"self": x}, {"min": 0}),
        ("clamp_", {"self": x}, {"max": 0.5}), ("clamp_min", {"self": x}, {"min": 0.1}),
        ("clamp_max", {"self": x}, {"max": 0.1}), ("hardtanh", {"self": x}, {"min_val": 0.0, "max_val": 6.0}),
        ("hardtanh_", {"self": x}, {}), ("gelu", {"self": x}, {}),
        ("gelu", {"self": x}, {"approximate": "tanh"}),
        ("leaky_relu", {"self": x}, {}), ("leaky_relu_", {"self": x}, {"negative_slope": 0.2}),
        ("elu", {"self": x}, {"alpha": 0.7}), ("softplus", {"self": x}, {}),
        ("prelu", {"self": f"{F} 2 3 4", "weight": f"{F} 3"}, {}),
        ("prelu", {"self": x, "weight": f"{F} 1"}, {}),
        ("_prelu_kernel", {"self": x, "weight": f"{F} 1 1"}, {}),
        ("where.self", {"condition": "bool 3 1", "self": x, "other": F}, {}),
        ("where.ScalarOther", {"condition": "bool 3 1", "self": x}, {"other": -1.0}),
        ("where.ScalarSelf", {"condition": "bool 3 4", "other": x}, {"self": 2.0}),
        ("masked_fill.Scalar", {"self": x, "mask": "bool 4"}, {"value": "-inf"}),
        ("masked_fill_.Scalar", {"self": x, "mask": "bool 3 4"}, {"value": 0}),
        ("masked_fill.Tensor", {"self": "float16 3 4", "mask": "bool 3 4", "value": F}, {}),
        ("addcmul", {"self": f"{F} 1 4", "tensor1": x, "tensor2": y}, {"value": 0.5}),
        ("addcmul_", {"self": x, "tensor1": row, "tensor2": y}, {}),
        ("addcdiv", {"self": x, "tensor1": y, "tensor2": f"{F} 3 4 >0"}, {}),
    ]  # fmt: skip


def _reduction() -> list[Sample]:
    x, i = f"{F} 3 4 5", "int32 3 4 <9"
    return [
        ("sum.SymInt", {"self": x}, {"dim": [0, 2], "keepdim": True}),
        ("sum.dim_IntList", {"self": i}, {"dim": [-1]}),
        ("sum", {"self": x}, {}), ("sum", {"self": "bool 3 4"}, {}), ("mean", {"self": x}, {}),
        ("mean.dim", {"self": x}, {"dim": [1, 2]}),
        ("mean.dim", {"self": f"{F} 3 4 ~"}, {"dim": [-1], "keepdim": True}),
        ("prod", {"self": f"{F} 3 4"}, {}), ("prod.dim_int", {"self": x}, {"dim": 1}),
        ("amax", {"self": x}, {"dim": [1]}), ("amin", {"self": x}, {}), ("max", {"self": i}, {}),
        ("min", {"self": x}, {}),
        ("max.dim", {"self": x}, {"dim": 1}), ("min.dim", {"self": x}, {"dim": -1, "keepdim": True}),
        ("argmax", {"self": x}, {"dim": 1}), ("argmin", {"self": x}, {"dim": 0, "keepdim": True}),
        ("any", {"self": "bool 3 4"}, {}), ("any.dim", {"self": "bool 3 4"}, {"dim": 1}),
        ("all", {"self": "bool 3 4"}, {}),
        ("all.dim", {"self": "bool 3 2"}, {"dim": 1, "keepdim": True}),
        ("logsumexp", {"self": x}, {"dim": [1]}),
        ("linalg_vector_norm", {"self": x}, {"dim": [1]}), ("linalg_vector_norm", {"self": x}, {"ord": 1}),
        ("var.correction", {"self": x}, {"dim": [1], "correction": 0}), ("var.correction", {"self": x}, {}),
        ("std.correction", {"self": x}, {"dim": [-1], "correction": 1, "keepdim": True}),
        ("var_mean.correction", {"self": x}, {"dim": [0, 2], "correction": 0, "keepdim": True}),
        ("cumsum", {"self": x}, {"dim": -2}), ("cumsum", {"self": i}, {"dim": 1}),
        ("topk", {"self": x}, {"k": 2}), ("topk", {"self": x}, {"k": 2, "dim": 0, "largest": False}),
    ]  # fmt: skip


def _pooling() -> list[Sample]:
    x = f"{F} 2 3 11 9"
    odd = {"kernel_size": [3, 2], "stride": [2, 2], "padding": [1, 1]}
    return [
        ("max_pool1d", {"self": f"{F} 2 3 11"}, {"kernel_size": [3], "stride": [2]}),
        ("max_pool2d", {"self": x}, {"kernel_size": [2, 2]}),
        ("max_pool2d", {"self": x}, {**odd, "dilation": [2, 1]}),
        ("max_pool3d", {"self": f"{F} 1 2 5 6 7"}, {"kernel_size": [2, 2, 2], "stride": [1, 2, 2]}),
        ("max_pool2d_with_indices", {"self": x},
         {"kernel_size": [3, 3], "stride": [2, 2], "ceil_mode": True}),
        ("max_pool2d_with_indices", {"self": x}, {**odd, "ceil_mode": True}),
        ("max_pool3d_with_indices", {"self": f"{F} 1 2 5 6 7"}, {"kernel_size": [2, 2, 2]}),
        ("avg_pool1d", {"self": f"{F} 2 3 11"}, {"kernel_size": [3], "padding": [1]}),
        ("avg_pool2d", {"self": x}, odd),
        ("avg_pool2d", {"self": x}, {**odd, "count_include_pad": False}),
        ("avg_pool2d", {"self": x}, {"kernel_size": [2, 2], "stride": [2, 2], "ceil_mode": True}),
        ("avg_pool2d", {"self": x}, {**odd, "ceil_mode": True}),
        ("avg_pool3d", {"self": f"{F} 1 2 5 6 7"}, {"kernel_size": [2, 3, 2]}),
        ("adaptive_avg_pool2d", {"self": x}, {"output_size": [1, 1]}),
        ("_adaptive_avg_pool2d", {"self": f"{F} 2 3 12 6"}, {"output_size": [4, 6]}),
        ("upsample_nearest2d.vec", {"input": x}, {"output_size": [20, 15]}),
        ("upsample_nearest2d.vec", {"input": x}, {"scale_factors": [2.0, 2.0]}),
        ("upsample_nearest2d", {"self": x}, {"output_size": [22, 18]}),
        ("upsample_bilinear2d.vec", {"input": x}, {"align_corners": True, "scale_factors": [2.0, 2.0]}),
        ("upsample_bilinear2d.vec", {"input": x}, {"align_corners": False, "output_size": [7, 20]}),
        ("upsample_bilinear2d", {"self": x}, {"output_size": [22, 18], "align_corners": False}),
        ("grid_sampler_2d", {"input": x, "grid": f"{F} 2 4 5 2"},
         {"interpolation_mode": 0, "padding_mode": 0, "align_corners": False}),
        ("grid_sampler_2d", {"input": x, "grid": f"{F} 2 4 5 2"},
         {"interpolation_mode": 1, "padding_mode": 1, "align_corners": True}),
        ("col2im", {"self": f"{F} 2 27 16"},
         {"output_size": [4, 4], "kernel_size": [3, 3], "dilation": [1, 1], "padding": [1, 1],
          "stride": [1, 1]}),
    ]  # fmt: skip


def _shaping() -> list[Sample]:
    x = f"{F} 3 4 5"
    pair = {"tensors[0]": f"{F} 3 4", "tensors[1]": f"{F} 3 4 ~"}
    return [
        ("copy_", {"self": x, "src": f"{F} 3 4 5 ~"}, {}), ("copy_", {"self": x, "src": "float64 4 1"}, {}),
        ("copy_", {"self": "int64 3 4", "src": f"{F} 3 4"}, {}),
        ("view", {"self": x}, {"size": [12, -1]}), ("_unsafe_view", {"self": x}, {"size": [60]}),
        ("reshape", {"self": f"{F} 3 4 ~"}, {"shape": [4, 3]}),
        ("flatten.using_ints", {"self": x}, {"start_dim": 1}),
        ("permute", {"self": x}, {"dims": [2, 0, -2]}),
        ("transpose.int", {"self": x}, {"dim0": 0, "dim1": -1}),
        ("t", {"self": f"{F} 3 4"}, {}), ("unsqueeze", {"self": x}, {"dim": -1}),
        ("squeeze", {"self": f"{F} 1 3 1"}, {}), ("squeeze.dim", {"self": f"{F} 1 3 1"}, {"dim": -1}),
        ("squeeze.dims", {"self": f"{F} 1 3 1"}, {"dim": [0, 1]}),
        ("expand", {"self": f"{F} 1 4"}, {"size": [2, 3, -1]}),
        ("repeat", {"self": f"{F} 3 4"}, {"repeats": [2, 1, 3]}),
        ("slice.Tensor", {"self": x}, {"dim": 1, "start": 1, "end": -1, "step": 2}),
        ("slice.Tensor", {"self": x}, {"dim": 2, "start": -3}),
        ("select.int", {"self": x}, {"dim": 1, "index": -1}),
        ("flip", {"self": x}, {"dims": [0, 2]}), ("cat", pair, {"dim": 1}), ("stack", pair, {"dim": -1}),
        ("split.Tensor", {"self": x}, {"split_size": 2, "dim": -1}),
        ("split_with_sizes", {"self": x}, {"split_sizes": [1, 3], "dim": 1}),
        ("chunk", {"self": x}, {"chunks": 3, "dim": 1}),
        ("unbind.int", {"self": x}, {"dim": 1}),
        ("constant_pad_nd", {"self": x}, {"pad": [1, 2, 0, -1], "value": 0.5}),
        ("constant_pad_nd", {"self": x}, {"pad": [0, -2]}),
        ("reflection_pad1d", {"self": x}, {"padding": [2, 1]}),
        ("reflection_pad2d", {"self": f"{F} 1 3 4 5"}, {"padding": [1, 2, 3, 0]}),
        ("replication_pad2d", {"self": f"{F} 1 3 4 5"}, {"padding": [1, 2, 3, 0]}),
        ("tril", {"self": x}, {"diagonal": 1}), ("triu", {"self": x}, {}),
        ("clone", {"self": f"{F} 3 4 ~"}, {}),
        ("lift_fresh_copy", {"self": "int64 4 <9"}, {}),
        ("_to_copy", {"self": "float16 3 4"}, {"dtype": "float32"}),
        ("_to_copy", {"self": x}, {}), ("contiguous", {"self": f"{F} 3 4 ~"}, {}),
    ]  # fmt: skip


def _indexing() -> list[Sample]:
    x = f"{F} 6 5"
    return [
        ("embedding", {"weight": x, "indices": "int64 2 3 <6"}, {"padding_idx": 0}),
        ("index_select", {"self": x, "index": "int64 4 <5"}, {"dim": 1}),
        ("gather", {"self": x, "index": "int64 2 5 <6"}, {"dim": 0}),
        ("index.Tensor", {"self": x, "indices[0]": "int64 2 3 <6"}, {}),
        ("index.Tensor", {"self": x, "indices[1]": "int64 4 <5"}, {}),
        ("scatter.src", {"self": x, "index": "int64 1 5 <6", "src": f"{F} 1 5"}, {"dim": 0}),
        ("scatter_add", {"self": x, "index": "int64 4 5 <6", "src": f"{F} 4 5"}, {"dim": 0}),
        ("scatter_add_", {"self": f"{F} 6", "index": "int64 9 <6", "src": f"{F} 9"}, {"dim": 0}),
        ("index_add", {"self": x, "index": "int64 3 <5", "source": f"{F} 6 3"}, {"dim": 1}),
        ("index_add_", {"self": f"{F} 6", "index": "int64 9 <6", "source": f"{F} 9"}, {"dim": 0}),
        ("nll_loss_forward", {"self": f"{F} 4 7", "target": "int64 4 <7"},
         {"weight": None, "reduction": 1, "ignore_index": -100}),
        ("nll_loss2d_forward", {"self": f"{F} 2 7 3 3", "target": "int64 2 3 3 <7", "weight": f"{F} 7 >0"},
         {"reduction": 2, "ignore_index": 3}),
        ("mse_loss", {"self": x, "target": f"{F} 6 5"}, {}),
        ("mse_loss", {"self": x, "target": x}, {"reduction": 0}),
    ]  # fmt: skip
