"""Three modules in PyTorch like torchvision's, small, with seeded weights, and an example input for each."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn


def made(name: str, seed: int = 0) -> tuple[nn.Module, torch.Tensor]:
    """The module in evaluation mode, and float32 input ``[1, 3, SIZE, SIZE]``."""
    torch.manual_seed(seed)
    return _MAKERS[name]().eval(), torch.randn(1, 3, SIZE, SIZE)


def _convolved(inside: int, outside: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outside))


class _Residual(nn.Module):
    """ResNet's basic block."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolved(inside, outside, 3, stride), nn.ReLU(), _convolved(outside, outside, 3)
        )
        self.beside = nn.Identity() if inside == outside else _convolved(inside, outside, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.beside(x))


class _Inverted(nn.Module):
    """MobileNet v2's block: widened, filtered by channel, narrowed."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        wide = 6 * inside
        self.body = nn.Sequential(
            _convolved(inside, wide, 1), nn.ReLU6(),
            _convolved(wide, wide, 3, stride, groups=wide), nn.ReLU6(), _convolved(wide, outside, 1),
        )  # fmt: skip
        self.adds = stride == 1 and inside == outside

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.adds else self.body(x)


class _Patches(nn.Module):
    """A vision transformer of four layers."""

    def __init__(self, size: int, patch: int = 16, width: int = 192) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, width, patch, patch)
        self.places = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2, width))
        layer = nn.TransformerEncoderLayer(
            width, 3, 4 * width, activation="gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.places
        return self.head(self.layers(tokens).mean(1))


def _classified(*blocks: nn.Module, width: int) -> nn.Module:
    return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1000))


def _resnet() -> nn.Module:
    widths = ((32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), (128, 128, 1))
    return _classified(
        _convolved(3, 32, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *(_Residual(*one) for one in widths),
        width=128,
    )  # fmt: skip


def _mobilenet() -> nn.Module:
    widths = ((16, 24, 2), (24, 24, 1), (24, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1))
    return _classified(_convolved(3, 16, 3, 2), nn.ReLU6(), *(_Inverted(*one) for one in widths), width=64)


SIZE = 128
"""An input's height and width."""
_MAKERS: dict[str, Callable[[], nn.Module]] = {
    "module_resnet": _resnet,
    "module_mobilenet": _mobilenet,
    "module_transformer": lambda: _Patches(SIZE),
}
