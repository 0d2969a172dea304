"""ONNX operators as PyTorch calls, one small builder each, by family.

A builder takes the node's :class:`~opatlas.load.torch.ops.site.TorchSite` and returns a function of the
node's inputs (None for those that are absent or whose content shapes the computation and was read by the
builder).
The families import torch; :mod:`~opatlas.load.torch.ops.names` and ``site`` do not.
"""
