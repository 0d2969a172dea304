"""ONNX models taken apart: read, typed, and as canonical operators with counts. PURE."""

from opatlas.graph.onnx_model import Extracted, Extraction, extract

__all__ = ["Extracted", "Extraction", "extract"]
