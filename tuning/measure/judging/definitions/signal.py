"""DFT, STFT and the windows, by way of NumPy's transform in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype
from onnx.reference.op_run import OpRun

from tuning.measure.judging.definitions.loss import Loss
from tuning.measure.judging.tolerance import FLOAT32

Array = np.ndarray


def _complex(x: Array) -> Array:
    """The last axis holds real parts, or real and imaginary ones."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _parts(x: Array) -> Array:
    return np.stack([x.real, x.imag], axis=-1)


def _transformed(signal: Array, length: int, axis: int, loss: Loss) -> Array:
    """All frequencies of a transform of this length; each is a sum of ``length`` terms, of which every one
    is as large as the signal's element."""
    cut = np.take(signal, range(min(length, signal.shape[axis])), axis)
    size = np.sqrt(length * np.sum(np.abs(cut) ** 2, axis=axis, keepdims=True))
    parts = _parts(np.fft.fft(signal, length, axis))
    return loss.of_sum(parts, np.broadcast_to(size[..., None], parts.shape))


class _Signal(OpRun):
    op_domain = ""
    loss: Loss


class DFT(_Signal):
    """Forwards, or backwards and divided by the length; ``onesided``: the half that a real signal needs."""

    def _run(self, x: Array, length: Any = None, axis: Any = -2, inverse: int = 0, onesided: int = 0):
        axis = int(axis) % x.ndim
        back = bool(inverse and onesided)
        given = 2 * (x.shape[axis] - 1) if back else x.shape[axis]
        number = given if length is None else int(length)
        signal = _complex(x)
        if back:
            signal = _whole(signal, number, axis)
        # Backwards: of the conjugate, and conjugate again.
        made = _transformed(np.conj(signal) if inverse else signal, number, axis, self.loss)
        if inverse:
            made = made * np.array([1.0, -1.0]) / number
        if back:
            return (made[..., :1],)
        if onesided:
            made = np.take(made, range(number // 2 + 1), axis)
        return (made,)


def _whole(half: Array, length: int, axis: int) -> Array:
    """All frequencies of a real signal, of its first half."""
    real = np.fft.irfft(half, length, axis)
    return np.fft.fft(real, length, axis)


class STFT(_Signal):
    """Frames times the window, each transformed."""

    def _run(self, x: Array, step: Any, window: Array | None = None, length: Any = None, onesided: int = 1):
        signal = _complex(x if x.ndim == 3 else x[..., None])
        number = int(length) if length is not None else signal.shape[1] if window is None else len(window)
        frames = np.lib.stride_tricks.sliding_window_view(signal, number, axis=1)[:, :: int(step)]
        weighted = frames * (np.ones(number) if window is None else window)
        made = _transformed(weighted, number, 2, self.loss)
        return (made[:, :, : number // 2 + 1] if onesided else made,)


class _Window(_Signal):
    """Its numbers may be those of float32 whatever its type: ONNX Runtime's are."""

    weights: tuple[float, ...] = ()
    """Of the cosines of once, twice … the angle, with their signs."""

    def _run(self, size: Any, output_datatype: int = 1, periodic: int = 1):
        count = int(size)
        angle = 2 * np.pi * np.arange(count) / (count if periodic else max(1, count - 1))
        made = sum((weight * np.cos(number * angle) for number, weight in enumerate(self.weights)), 0.0)
        wide = self.loss.of_function(np.asarray(made), 1.0, FLOAT32)
        floating = tensor_dtype_to_np_dtype(output_datatype).kind == "f"
        return (wide if floating else wide.astype(tensor_dtype_to_np_dtype(output_datatype)),)


class HannWindow(_Window):
    weights = (0.5, -0.5)


class HammingWindow(_Window):
    weights = (25 / 46, -21 / 46)


class BlackmanWindow(_Window):
    weights = (0.42, -0.5, 0.08)


OPERATORS = (DFT, STFT, HannWindow, HammingWindow, BlackmanWindow)
