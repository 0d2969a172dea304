"""Reads operator lists and sample models; ONNX models are :mod:`opatlas.graph`'s. PURE."""

from tuning.graph.samples import SAMPLES, sample_graph, sample_model

__all__ = ["SAMPLES", "sample_graph", "sample_model"]
