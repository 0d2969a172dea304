"""C kernels through the ABI: threads, constants, errors, alignment, strides."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Node, Operator, Value
from opatlas.load import KernelFailed, load
from tests.opatlas.load.kernels import ADD, PREPARED_ADD, STRIDED_COPY, add_operator, build

X = np.arange(1000, dtype=np.float32)


def misaligned(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy that starts ``offset`` bytes beyond a multiple of 64."""
    raw = np.empty(array.nbytes + 128, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads_share_the_work(threads: int, tmp_path: Path) -> None:
    kernel = load(build(tmp_path, ADD, add_operator(), threads=threads), tmp_path)
    bound = kernel.bind({0: X, 1: 2 * X})
    for _ in range(100):
        bound.poison()
        assert np.isnan(bound.outputs()[0]).all()
        bound()
        assert (bound.outputs()[0] == 3 * X).all()
    kernel.close()


def test_call_sees_new_values_in_the_same_buffers(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, ADD, add_operator()), tmp_path)
    for offset in (0, 4):  # used in place, and copied because misaligned
        x, y = misaligned(X, offset), misaligned(X, offset)
        bound = kernel.bind({0: x, 1: y})
        bound()
        assert (bound.outputs()[0] == 2 * X).all()
        x[...] = 0
        bound()
        assert (bound.outputs()[0] == X).all()


def test_buffers_by_their_addresses(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, PREPARED_ADD, add_operator(constant=True)), tmp_path)
    with pytest.raises(LoadError, match="call prepare before"):
        kernel.by_address()
    kernel.prepare({1: 2 * X})
    call = kernel.by_address()
    for factor in (1, 3):
        x, made = misaligned(factor * X, 0), misaligned(X, 0)
        call([x.ctypes.data, made.ctypes.data])
        assert (made == (factor + 2) * X).all()
    with pytest.raises(KernelFailed, match="x is too large"):
        call([(x := misaligned(X + np.float32(2e30), 0)).ctypes.data, made.ctypes.data])
    kernel.prepare({1: X})
    with pytest.raises(KernelFailed, match="new constants"):
        call([x.ctypes.data, made.ctypes.data])
    call = kernel.by_address()
    kernel.close()
    with pytest.raises(KernelFailed, match="was closed"):
        call([x.ctypes.data, made.ctypes.data])


@pytest.mark.parametrize("offset", [4, 16, 32])
def test_misaligned_inputs_reach_the_kernel_aligned(offset: int, tmp_path: Path) -> None:
    """The kernel itself returns 64 for a pointer that is not a multiple of 64."""
    kernel = load(build(tmp_path, ADD, add_operator()), tmp_path)
    bound = kernel.bind({0: misaligned(X, offset), 1: X.copy()})
    bound()
    assert (bound.outputs()[0] == 2 * X).all()
    assert bound.outputs()[0].ctypes.data % 64 == 0


def test_constants_are_packed_once_and_freed(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, PREPARED_ADD, add_operator(constant=True)), tmp_path)
    with pytest.raises(LoadError, match="call prepare before bind"):
        kernel.bind({0: X})
    kernel.prepare({1: X})
    bound = kernel.bind({0: X})
    bound()
    assert (bound.outputs()[0] == 2 * X).all()
    kernel.prepare({1: misaligned(5 * X, 8)})
    with pytest.raises(KernelFailed, match="bind it again"):
        bound()
    again = kernel.bind({0: X})
    again()
    assert (again.outputs()[0] == 6 * X).all()
    kernel.close()
    with pytest.raises(KernelFailed):
        again()
    kernel.close()  # twice does no harm


def test_kernel_that_refuses_its_constants_says_why(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, PREPARED_ADD, add_operator(constant=True)), tmp_path)
    with pytest.raises(LoadError, match="refuses its constants: the first constant is negative"):
        kernel.prepare({1: X - 1})


def test_failing_run_says_why(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, PREPARED_ADD, add_operator(constant=True)), tmp_path)
    kernel.prepare({1: X})
    bound = kernel.bind({0: np.full(1000, 1e31, np.float32)})
    with pytest.raises(KernelFailed, match="x is too large"):
        bound()


def test_bare_error_code_is_shown(tmp_path: Path) -> None:
    source = ADD[: ADD.index("  if (n != 3)")] + "  return 42;\n}\n"
    source = source.replace("static int body", "int body")
    kernel = load(build(tmp_path, source, add_operator()), tmp_path)
    with pytest.raises(KernelFailed, match="error code 42"):
        kernel.bind({0: X, 1: X})()


@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (X.astype(np.float64), "input 1 has element type float64, the operator says float32"),
        (X[:10].copy(), r"input 1 has shape \[10\], the operator says \[1000\]"),
        (np.arange(2000, dtype=np.float32)[::2], r"input 1 has strides \[2\], the operator says \[1\]"),
    ],
)
def test_wrong_input_is_refused(array: np.ndarray, sentence: str, tmp_path: Path) -> None:
    kernel = load(build(tmp_path, ADD, add_operator()), tmp_path)
    with pytest.raises(LoadError, match=sentence):
        kernel.bind({0: X, 1: array})


def test_missing_and_surplus_inputs_are_refused(tmp_path: Path) -> None:
    kernel = load(build(tmp_path, ADD, add_operator()), tmp_path)
    for inputs in ({0: X}, {0: X, 1: X, 2: X}):
        with pytest.raises(LoadError, match=r"the operator takes \[0, 1\] here"):
            kernel.bind(inputs)


def test_strides_reach_the_kernel_and_outputs_lie_as_stated(tmp_path: Path) -> None:
    operator = Operator(
        inputs=(Value("float32", (3, 5), strides=(1, 3)),),
        nodes=(Node("Identity", (0,), (1,)),),
        outputs=(1,),
        produced=(Value("float32", (3, 5), strides=(8, 1)),),
    )
    kernel = load(build(tmp_path, STRIDED_COPY, operator), tmp_path)
    x = np.asfortranarray(np.arange(15, dtype=np.float32).reshape(3, 5))
    bound = kernel.bind({0: x})
    bound()
    (made,) = bound.outputs()
    assert made.strides == (32, 4)
    np.testing.assert_array_equal(made, x)


def test_many_kernels_live_side_by_side(tmp_path: Path) -> None:
    """Libraries are told apart although every one comes from a memory file."""
    kernels = []
    for factor in range(5):
        folder = tmp_path / str(factor)
        folder.mkdir()
        source = ADD.replace("x[i] + y[i]", f"{factor} * x[i] + y[i]")
        kernel = load(build(folder, source, add_operator()), folder)
        kernels.append((factor, kernel, kernel.bind({0: X, 1: X})))
    kernels.pop(1)[1].close()
    for factor, _, bound in kernels:
        bound()
        assert (bound.outputs()[0] == (factor + 1) * X).all()
