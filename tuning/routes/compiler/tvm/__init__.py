"""Apache TVM: operators lowered by its ONNX frontend, scheduled here, shipped without TVM."""

from tuning.routes.compiler.tvm.route import TvmRoute

__all__ = ["TvmRoute"]
