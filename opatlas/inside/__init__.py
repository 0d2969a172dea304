"""Kernels inside one session of ONNX Runtime, as its custom operators. PURE."""
