"""Kernels inside one session of a framework: of ONNX Runtime, whose custom operators they are. PURE."""
