"""Fourier transforms. Complex numbers are a last axis of two: real and imaginary parts."""

from __future__ import annotations

import torch

from opatlas.load.torch.ops.site import Builder, Built, TorchSite


def _complex(x: torch.Tensor) -> torch.Tensor:
    """A signal of one part, or of two, without its last axis."""
    return x.squeeze(-1) if x.shape[-1] == 1 else torch.view_as_complex(x.contiguous())


def _dft(site: TorchSite) -> Built:
    [axis] = site.numbers(2)
    length = site.numbers(1)[0] if site.has(1) else None
    inverse, one_sided = site.flag("inverse"), site.flag("onesided")
    if inverse and one_sided:
        return lambda x, *_: torch.fft.irfft(_complex(x), length, axis).unsqueeze(-1)
    if one_sided:
        return lambda x, *_: torch.view_as_real(torch.fft.rfft(_complex(x), length, axis))
    transform = torch.fft.ifft if inverse else torch.fft.fft
    # Of real numbers PyTorch computes an inverse as a conjugate, which it has not written out yet.
    return lambda x, *_: torch.view_as_real(transform(_complex(x), length, axis).resolve_conj())


def _stft(site: TorchSite) -> Built:
    [step] = site.numbers(1)
    rank = site.rank()
    length = site.numbers(3)[0] if site.has(3) else site.shape(2)[0] if site.has(2) else site.shape(0)[1]
    one_sided = site.flag("onesided")

    def run(x, _=None, window=None, *__):
        signal = x if rank == 2 else _complex(x)
        frames = signal.unfold(1, length, step)
        weighted = frames if window is None else frames * window
        halved = one_sided and not weighted.is_complex()
        return torch.view_as_real(torch.fft.rfft(weighted) if halved else _cut(torch.fft.fft(weighted)))

    def _cut(made: torch.Tensor) -> torch.Tensor:
        return made[..., : length // 2 + 1] if one_sided else made

    return run


BUILDERS: dict[str, Builder] = {"DFT": _dft, "STFT": _stft}
