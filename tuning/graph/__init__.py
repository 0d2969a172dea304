"""Models and operator lists as input: taken apart into canonical operators with counts. PURE."""

from tuning.graph.onnx_model import Extracted, Extraction, extract
from tuning.graph.samples import SAMPLES, sample_graph, sample_model

__all__ = ["SAMPLES", "Extracted", "Extraction", "extract", "sample_graph", "sample_model"]
