"""Sliding windows of convolutions and pools in numbers. Imports no library: every lowering's."""

from __future__ import annotations

from dataclasses import dataclass

from opatlas.load.torch.ops.site import TorchSite

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Window:
    """A sliding window over the spatial dimensions; ``extra`` is how far beyond the padded input the last
    window reaches (``ceil_mode``)."""

    kernel: Sizes
    strides: Sizes
    dilations: Sizes
    begins: Sizes
    ends: Sizes
    extra: Sizes

    @property
    def spatial(self) -> int:
        return len(self.kernel)

    @property
    def native(self) -> bool:
        """Whether the padding of PyTorch's pools can say it: symmetric, at most half the window."""
        half = all(2 * pad <= size for pad, size in zip(self.begins, self.kernel, strict=True))
        return half and self.begins == self.ends and not any(self.extra)

    @property
    def whole_ends(self) -> list[int]:
        """The padding behind the input and what ``ceil_mode`` adds to it."""
        return [end + more for end, more in zip(self.ends, self.extra, strict=True)]


def read_window(site: TorchSite) -> Window:
    """The node's window: the canonical form has worked ``auto_pad`` out."""
    kernel, strides, dilations = (site.attrs[name] for name in ("kernel_shape", "strides", "dilations"))
    begins, ends = site.pads()
    extra = []
    for axis, (made, size) in enumerate(zip(site.output().shape[2:], site.shape(0)[2:], strict=True)):
        reach = (made - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1
        extra.append(max(0, reach - size - begins[axis] - ends[axis]))
    return Window(kernel, strides, dilations, begins, ends, tuple(extra))
