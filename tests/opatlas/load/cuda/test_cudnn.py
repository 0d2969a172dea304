"""Operators as cuDNN is asked for them: by a frontend of NumPy that reads memory as the real one would, and
compared with PyTorch on the processor."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Operator, Setting, parse_operator
from opatlas.load.buffers import empty
from opatlas.load.cuda import cudnn
from opatlas.load.cuda.cudnn import MOST_PLANS, CudnnKernel, CudnnLibrary, DeviceFailed
from opatlas.load.cuda.dnn_graph import POINTWISE, graph_of
from opatlas.load.cuda.nvidia_library import shared_library
from opatlas.load.recipe import ALLOWED, check_recipe
from tests.catalog.making import GPU
from tests.opatlas.load.cuda.simulated import SimulatedDriver
from tests.opatlas.load.cuda.simulated_cudnn import SimulatedFrontend
from tuning.routes.base import Budget, No
from tuning.routes.handed_out import AT_ONCE
from tuning.routes.library.cudnn import Cudnn

RECIPE = {"library": "cudnn", "call": "graph", "device": "cuda", "plan": 1}


def tensor(*shape: int, dtype: str = "float32", **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": dtype, **more}


def conv(*inputs: dict[str, Any], op: str = "Conv", **attrs: Any) -> dict[str, Any]:
    return {"op": op, "attrs": attrs, "inputs": list(inputs)}


def then(*following: tuple[str, dict[str, Any], list[dict[str, Any]]], bias: bool = True) -> dict[str, Any]:
    """A convolution and what comes after it, each node of the last one's result and of tensors of its own."""
    inputs = [tensor(2, 3, 5, 6), tensor(4, 3, 3, 3, const=True), *([tensor(4)] if bias else [])]
    return chain({"op": "Conv", "inputs": [*range(len(inputs))], "outputs": [10]}, inputs, following)


def after_product(op: str, *own: dict[str, Any], **attrs: Any) -> dict[str, Any]:
    inputs = [tensor(3, 6), tensor(6, 5)]
    return chain({"op": "MatMul", "inputs": [0, 1], "outputs": [10]}, inputs, [(op, attrs, list(own))])


def chain(head: dict[str, Any], inputs: list[dict[str, Any]], following: Any) -> dict[str, Any]:
    nodes = [head]
    for op, attrs, own in following:
        numbers = [*range(len(inputs), len(inputs) + len(own))]
        inputs = [*inputs, *own]
        last = nodes[-1]["outputs"][0]
        nodes.append({"op": op, "inputs": [last, *numbers], "outputs": [last + 1], "attrs": attrs})
    return {"inputs": inputs, "nodes": nodes, "outputs": [nodes[-1]["outputs"][0]]}


def bound(value: float) -> dict[str, Any]:
    return tensor(data=[value])


X, W = tensor(2, 4, 7, 9), tensor(6, 4, 3, 3)
LAST = tensor(2, 4, 7, 9, strides=[252, 1, 36, 4])
HEADS, FEWER = tensor(1, 4, 5, 8, dtype="float16"), tensor(1, 2, 6, 8, dtype="float16")


def one_by_one(following: Any, last: dict[str, Any] = LAST) -> dict[str, Any]:
    weights = [tensor(4, 4, 1, 1), tensor(4)]
    return chain({"op": "Conv", "inputs": [0, 1, 2], "outputs": [10]}, [last, *weights], following)


LYING_LAST = {
    "channels last": conv(LAST, W, tensor(6)),
    "channels last, transposed": conv(LAST, tensor(4, 5, 3, 2), op="ConvTranspose", strides=[2, 3]),
    "channels last of volumes": conv(
        tensor(1, 2, 4, 5, 6, dtype="float16", strides=[240, 1, 60, 12, 2]),
        tensor(4, 2, 3, 3, 3, dtype="float16"),
    ),
    "channels last, added to": one_by_one([("Add", {}, [LAST]), ("Relu", {}, [])]),
    "channels last, more after it": one_by_one([("LeakyRelu", {"alpha": 0.1}, []), ("Mul", {}, [LAST])]),
}
"""Whose results lie as what is read does."""
PLAIN = ("Abs", "Erf", "Exp", "Gelu", "Neg", "Relu", "Sigmoid", "Softplus", "Tanh")
CASES: dict[str, dict[str, Any]] = {
    "convolution": conv(X, W),
    "with a bias": conv(X, W, tensor(6)),
    "padded unevenly, strided": conv(X, W, pads=[1, 0, 2, 1], strides=[2, 3]),
    "dilated": conv(X, W, pads=[2, 2, 2, 2], dilations=[2, 2]),
    "in groups": conv(X, tensor(6, 2, 3, 3), tensor(6), group=2, pads=[1, 1, 1, 1]),
    "one a channel": conv(X, tensor(4, 1, 3, 3), group=4),
    "constant weights": conv(X, tensor(6, 4, 3, 3, const=True)),
    **LYING_LAST,
    "one dimension": conv(tensor(2, 4, 9), tensor(6, 4, 3), tensor(6), pads=[1, 2], strides=[2]),
    "three dimensions": conv(tensor(1, 2, 4, 5, 6), tensor(3, 2, 2, 3, 2)),
    "half": conv(tensor(2, 4, 7, 9, dtype="float16"), tensor(6, 4, 3, 3, dtype="float16")),
    "brain half": conv(tensor(1, 2, 4, 4, dtype="bfloat16"), tensor(2, 2, 1, 1, dtype="bfloat16")),
    "transposed": conv(X, tensor(4, 5, 3, 2), op="ConvTranspose", strides=[2, 3], pads=[1, 0, 0, 1]),
    "transposed in groups": conv(X, tensor(4, 3, 2, 2), op="ConvTranspose", group=2),
    "transposed with room": conv(
        X, tensor(4, 5, 3, 3), op="ConvTranspose", strides=[2, 2], output_padding=[1, 0]
    ),
    "layer norm": {
        "op": "LayerNormalization",
        "attrs": {"axis": 1, "epsilon": 0.25},
        "inputs": [tensor(5, 2, 6), tensor(2, 6), tensor(2, 6)],
    },
    "rms norm": {
        "op": "RMSNormalization",
        "attrs": {"epsilon": 0.25},
        "inputs": [tensor(2, 5, 12), tensor(12, const=True)],
    },
    "product": {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(6, 5)]},
    "product in batches": {"op": "MatMul", "inputs": [tensor(2, 3, 4, 6), tensor(2, 3, 6, 5)]},
    "gemm": {
        "op": "Gemm",
        "attrs": {"transA": 1, "transB": 1},
        "inputs": [tensor(6, 4), tensor(5, 6), tensor(5)],
    },
    "attention": {"op": "Attention", "inputs": [tensor(1, 2, 5, 8, dtype="float16")] * 3},
    "grouped heads": {
        "op": "Attention",
        "attrs": {"scale": 0.5},
        "inputs": [HEADS, FEWER, FEWER],
    },
    "causal": {"op": "Attention", "attrs": {"is_causal": 1}, "inputs": [HEADS] * 3},
    "causal, more keys than queries": {
        "op": "Attention",
        "attrs": {"is_causal": 1},
        "inputs": [HEADS, FEWER, FEWER],
    },
    **{
        f"product, then {op}": after_product(op, **attrs)
        for op, attrs in {
            **{op: {} for op in PLAIN},
            "Elu": {},
            "LeakyRelu": {"alpha": 0.1},
        }.items()
    },
    "product, then Gelu by tanh": after_product("Gelu", approximate="tanh"),
    "product, then Clip": after_product("Clip", bound(-0.5), bound(1.0)),
    **{
        f"product, then {op} with a row": after_product(op, tensor(5))
        for op in ("Add", "Div", "Max", "Min", "Mul", "Sub")
    },
    **{f"convolution, then {op}": then((op, {}, [])) for op in ("Relu", "Sigmoid", "Tanh", "Elu")},
    "convolution, then Clip": then(("Clip", {}, [bound(0.0), bound(0.5)])),
    "convolution, then Add and Relu": then(("Add", {}, [tensor(2, 4, 3, 4)]), ("Relu", {}, [])),
    "two after it": {
        "inputs": [tensor(3, 6), tensor(6, 5), tensor(5)],
        "nodes": [
            {"op": "MatMul", "inputs": [0, 1], "outputs": [10]},
            {"op": "Add", "inputs": [10, 2], "outputs": [11]},
            {"op": "Sigmoid", "inputs": [11], "outputs": [12]},
            {"op": "Mul", "inputs": [11, 12], "outputs": [13]},
        ],
        "outputs": [13],
    },
}


def arrays_of(operator: Operator) -> dict[int, np.ndarray]:
    random = np.random.default_rng(7)
    made = {}
    for number in operator.tensor_inputs:
        made[number] = empty(operator.inputs[number], 64)
        made[number][...] = random.uniform(0.1, 1, made[number].shape)
        made[number][...] *= random.choice([-1, 1], made[number].shape)
    return made


def computed(operator: Operator, device: SimulatedDriver, library: CudnnLibrary) -> np.ndarray:
    arrays = arrays_of(operator)
    kernel = CudnnKernel(operator, check_recipe(RECIPE, 1), device, library)
    kernel.prepare({number: arrays[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: arrays[number] for number in operator.runtime_inputs})
    bound()
    return bound.outputs()[0].astype(np.float64)


def wanted(operator: Operator) -> np.ndarray:
    pytest.importorskip("torch", reason="it is compared with PyTorch")
    from opatlas.load.torch.recipe import TorchKernel

    arrays = arrays_of(operator)
    kernel = TorchKernel(operator, check_recipe({"library": "torch", "call": "eager"}, 1))
    kernel.prepare({number: arrays[number] for number in operator.constant_inputs})
    bound = kernel.bind({number: arrays[number] for number in operator.runtime_inputs})
    bound()
    return bound.outputs()[0].astype(np.float64)


@pytest.mark.parametrize("name", CASES)
def test_what_it_is_asked_for_is_the_operator(name: str) -> None:
    operator, device = parse_operator(CASES[name]), SimulatedDriver()
    near = 1e-4 if operator.output_values[0].dtype == "float32" else 3e-2
    found = computed(operator, device, CudnnLibrary(SimulatedFrontend(device)))
    np.testing.assert_allclose(found, wanted(operator), rtol=near, atol=near)


@pytest.mark.parametrize("name", ["convolution", *LYING_LAST])
def test_results_lie_as_what_is_read_does(name: str) -> None:
    operator, device = parse_operator(CASES[name]), SimulatedDriver()
    kernel = CudnnKernel(operator, check_recipe(RECIPE, 1), device, CudnnLibrary(SimulatedFrontend(device)))
    bound = kernel.bind(arrays_of(operator))
    bound()
    (output,), (there,) = bound.outputs(), bound.device_outputs()
    said = there.__cuda_array_interface__["strides"]
    last = np.moveaxis(output, 1, -1)
    assert last.flags.c_contiguous == (name in LYING_LAST) != output.flags.c_contiguous
    assert said == (output.strides if name in LYING_LAST else None)


def test_every_pointwise_step_is_among_the_cases() -> None:
    seen = {op for document in CASES.values() for op in parse_operator(document).op_types}
    assert set(POINTWISE) - seen == {"Sqrt"}, "whose operands are of both signs here"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"op": "Softmax", "inputs": [tensor(4, 6)]}, "Softmax is no step"),
        ({"op": "Relu", "inputs": [tensor(4, 6)]}, "not none"),
        (conv(tensor(1, 2, 4, 4, dtype="float64"), tensor(2, 2, 1, 1, dtype="float64")), "of one of float32"),
        ({"op": "MaxPool", "attrs": {"kernel_shape": [2, 2]}, "inputs": [X]}, "MaxPool is no step"),
        (after_product("Elu", alpha=0.5), "another slope than 1"),
        ({"op": "Gemm", "attrs": {"alpha": 0.5}, "inputs": [tensor(4, 6), tensor(6, 5)]}, "with a factor"),
        ({"op": "MatMul", "inputs": [tensor(2, 1, 4, 6), tensor(2, 3, 6, 5)]}, "spread in part"),
        ({"op": "LayerNormalization", "inputs": [tensor(4, 6), tensor(6)]}, "without a bias"),
        ({"op": "Attention", "inputs": [tensor(1, 2, 5, 8)] * 3}, "float32"),
        ({"op": "Attention", "inputs": [HEADS] * 3 + [tensor(5, 5, dtype="float16")]}, "mask of its own"),
    ],
)
def test_what_is_left_to_other_routes_has_a_reason(document: dict[str, Any], words: str) -> None:
    operator = parse_operator(document)
    with pytest.raises(LoadError, match=words):
        graph_of(operator)
    refused = Cudnn().supports(operator, Setting())
    assert isinstance(refused, No)
    assert words in refused.reason


@pytest.mark.parametrize(
    "document",
    [
        then(("Relu", {}, []), bias=False),
        then(("Relu", {}, []), ("Relu", {}, [])),
        then(("LeakyRelu", {"alpha": 0.1}, [])),
        then(("Clip", {}, [bound(-1.0), bound(1.0)])),
        then(("Add", {}, [tensor(4, 1, 1)])),
        chain(
            {"op": "Conv", "inputs": [0, 1], "outputs": [10], "attrs": {"group": 4}},
            [LAST, tensor(4, 1, 3, 3)],
            [("Gelu", {}, [])],
        ),
    ],
)
def test_what_the_library_has_no_plan_for_after_a_head_is_not_asked_of_it(document: dict[str, Any]) -> None:
    with pytest.raises(LoadError, match="what follows"):
        graph_of(parse_operator(document))


def test_what_comes_before_the_convolution_is_left_to_others() -> None:
    document = {
        "inputs": [X, W],
        "nodes": [
            {"op": "Relu", "inputs": [0], "outputs": [10]},
            {"op": "Conv", "inputs": [10, 1], "outputs": [11]},
        ],
        "outputs": [11],
    }
    with pytest.raises(LoadError, match="what comes before Conv"):
        graph_of(parse_operator(document))


@pytest.mark.parametrize(("tf32", "numbers"), [(True, [0, 1, 3]), (False, [1, 3])])
def test_each_plan_counts_once_and_those_that_round_where_the_setting_asks(
    tf32: bool, numbers: list[int]
) -> None:
    operator = parse_operator(CASES["convolution"])
    for number, meant in enumerate(numbers, 1):
        device = SimulatedDriver()
        frontend = SimulatedFrontend(device)
        recipe = check_recipe({**RECIPE, "plan": number, "tf32": tf32}, 1)
        CudnnKernel(operator, recipe, device, CudnnLibrary(frontend))
        assert frontend.built[-1] == meant
    recipe = check_recipe({**RECIPE, "plan": len(numbers) + 1, "tf32": tf32}, 1)
    with pytest.raises(LoadError, match=f"offers {len(numbers)} plans here; this recipe wants number"):
        CudnnKernel(operator, recipe, device, CudnnLibrary(SimulatedFrontend(device)))


def test_half_types_may_use_tensor_cores() -> None:
    operator, device = parse_operator(CASES["half"]), SimulatedDriver()
    frontend = SimulatedFrontend(device)
    CudnnKernel(operator, check_recipe(RECIPE, 1), device, CudnnLibrary(frontend))
    assert frontend.built == [0]


def test_runs_go_into_the_stream_that_is_launched_into() -> None:
    operator, device = parse_operator(CASES["product"]), SimulatedDriver()
    frontend = SimulatedFrontend(device)
    recipe = check_recipe({**RECIPE, "tf32": True}, 1)
    bound = CudnnKernel(operator, recipe, device, CudnnLibrary(frontend)).bind(arrays_of(operator))
    bound()
    device.stream = 5
    bound()
    bound()
    assert frontend.streams == [0, 5, 5]


def test_a_plan_that_wants_too_large_a_workspace_is_refused() -> None:
    device = SimulatedDriver()
    library = CudnnLibrary(SimulatedFrontend(device, 512 << 20))
    with pytest.raises(LoadError, match="wants a workspace of 512 MiB"):
        CudnnKernel(parse_operator(CASES["half"]), check_recipe(RECIPE, 1), device, library)


def test_its_recipes_follow_the_setting_and_tuning_tries_the_rest(tmp_path: Any) -> None:
    operator = parse_operator(CASES["convolution"])
    found = list(Cudnn().candidates(operator, GPU, Setting(tf32=True), Budget(1.0)))
    assert [one.parameters["plan"] for one in found] == list(range(1, AT_ONCE + 1))
    assert all(check_recipe(one.parameters, 1)["tf32"] for one in found)
    rest = []
    while more := list(Cudnn().tune(operator, GPU, Setting(), tmp_path, 1.0)):
        assert not any(one.parameters["tf32"] for one in more)
        rest += [one.parameters["plan"] for one in more]
    assert rest == list(range(AT_ONCE + 1, MOST_PLANS + 1))
    assert ALLOWED["cudnn", "graph"]["plan"] == tuple(range(1, MOST_PLANS + 1))


@pytest.mark.parametrize("name", ["product", "channels last, more after it"])
def test_what_has_no_strict_plan_for_float32_is_left_to_others(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cudnn, "versions", lambda self: {"nvidia-cudnn-cu13": "9.28.1.4"})
    operator = parse_operator(CASES[name])
    refused = Cudnn().supports(operator, Setting())
    assert isinstance(refused, No)
    assert "TF32" in refused.reason
    assert Cudnn().supports(operator, Setting(tf32=True))


@pytest.mark.parametrize(("version", "is_asked"), [("9.19.0.56", False), ("9.28.1.4", True)])
def test_an_older_library_is_not_asked_for_what_it_has_no_plans_for(
    version: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight candidates would come back empty, one after another."""
    monkeypatch.setattr(Cudnn, "versions", lambda self: {"nvidia-cudnn-cu13": version})
    for name, plain in {"product": True, "causal": True, "with a bias": True, "two after it": False}.items():
        asked = Cudnn().supports(parse_operator(CASES[name]), Setting(tf32=True))
        assert bool(asked) == (plain or is_asked), name


def test_a_recipe_needs_the_library_and_the_frontend_that_numbered_its_plan(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    versions = {"nvidia-cudnn-cu13": "9.28.1.4", "nvidia-cudnn-frontend": "1.26.0"}
    monkeypatch.setattr(Cudnn, "versions", lambda self: versions)
    operator, setting = parse_operator(CASES["half"]), Setting()
    first = next(Cudnn().candidates(operator, GPU, setting, Budget(1.0)))
    assert Cudnn().build(operator, GPU, setting, first, tmp_path).manifest.needs == versions


@pytest.mark.skipif(bool(Cudnn().versions()), reason="cuDNN is installed here")
def test_where_it_is_not_installed_it_says_so() -> None:
    refused = Cudnn().available(GPU)
    assert isinstance(refused, No)
    assert refused.reason == "nvidia-cudnn-cu13, nvidia-cudnn-frontend is not installed"
    cudnn.open_library.cache_clear()
    with pytest.raises(LoadError, match="needs cuDNN, which cannot be loaded"):
        cudnn.open_library()


class Refusing(SimulatedFrontend):
    """Has a handle, and nothing else."""

    def create_handle(self) -> int:
        raise RuntimeError("no handle today")


def test_what_the_frontend_raises_is_a_refusal_until_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimulatedDriver()
    with pytest.raises(LoadError, match="no handle today"):
        CudnnLibrary(Refusing(device))
    operator, frontend = parse_operator(CASES["half"]), SimulatedFrontend(device)
    kernel = CudnnKernel(operator, check_recipe(RECIPE, 1), device, CudnnLibrary(frontend))
    bound = kernel.bind(arrays_of(operator))
    frontend.built.clear()
    with pytest.raises(DeviceFailed, match="cuDNN cannot run it"):
        bound()


# The library itself, where it is installed: asked about devices that are not here.

DEVICES = {
    "sm_80": {"deviceVer": 800, "multiProcessorCount": 108, "maxSharedMemoryPerBlockOptin": 166912},
    "sm_90": {"deviceVer": 900, "multiProcessorCount": 132, "maxSharedMemoryPerBlockOptin": 232448},
    "sm_100": {"deviceVer": 1000, "multiProcessorCount": 148, "maxSharedMemoryPerBlockOptin": 232448},
}


def described(name: str) -> str:
    return json.dumps(
        {
            "maxGridSize": [2147483647, 65535, 65535],
            "maxBlockSize": [1024, 1024, 64],
            "regsPerBlock": 65536,
            "smCountOrigin": 0,
            "warpSize": 32,
            "maxSharedMemoryPerBlock": 49152,
            "reservedSharedMemoryPerBlock": 1024,
            "oversizedSharedMemoryPerBlock": 0,
            "maxRegistersPerSM": 65536,
            "maxCtasPerSM": 32,
            "maxThreadsPerBlock": 1024,
            "maxThreadsPerSM": 2048,
            "pciDeviceId": 0,
            "isTccDriver": 0,
            "supportCoopLaunch": 1,
            "totalGlobalMem": 85899345920,
            "smClockRateKHz": 1980000,
            "memClockRateKHz": 2619000,
            "memoryBusWidth": 5120,
            "l2CacheSize": 52428800,
            "cudaDeviceId": 0,
            "driverVer": 13000,
            "deviceName": name,
            **DEVICES[name],
        }
    )


ASKS_NO_DEVICE = 92801
"""The least version that was seen to tell plans of a device where there is none; those before ask the device
that is here, whatever they are told."""


def can_be_asked() -> str:
    """Why not, where it cannot."""
    try:
        ctypes.CDLL("libcuda.so.1")  # its engines link by it
    except OSError as error:
        return f"cuDNN needs a driver: {error}"
    version = int(shared_library("cudnn", "cuDNN").cudnnGetVersion())
    return "" if version >= ASKS_NO_DEVICE else f"cuDNN {version} asks the device that is here"


def without_plans(library: CudnnLibrary) -> dict[str, str]:
    """Of those cases that the route asks for: why."""
    without = {}
    for name, document in CASES.items():
        operator = parse_operator(document)
        try:
            if Cudnn().supports(operator, Setting(tf32=True)):
                assert next(library.offers(graph_of(operator), strict=False))
        except (LoadError, StopIteration) as error:
            without[name] = str(error)
    return without


@pytest.mark.parametrize("device", DEVICES)
def test_the_library_itself_offers_plans_for_devices_that_are_not_here(device: str) -> None:
    try:
        frontend = cudnn.frontend()
    except LoadError as error:
        pytest.skip(str(error))
    if reason := can_be_asked():
        pytest.skip(reason)
    properties = DEVICES[device]
    told = {
        "device_property": frontend.create_device_properties(described(device)),
        "sm_version": properties["deviceVer"] // 10,
        "sm_count": properties["multiProcessorCount"],
    }
    assert without_plans(CudnnLibrary(frontend, told)) == {}
