"""Every route there is, in the order in which they are tried. Adding one is a line here."""

from __future__ import annotations

from collections.abc import Collection

from opatlas.conf import Misconfigured
from opatlas.identity import Operator, Setting, Target
from tuning.routes.base import Budget, Candidate, Route
from tuning.routes.compiler.halide import HalideRoute
from tuning.routes.compiler.inductor import InductorRoute
from tuning.routes.compiler.triton import TritonRoute
from tuning.routes.compiler.tvm import TvmRoute
from tuning.routes.compiler.xla import XlaRoute
from tuning.routes.library.cublaslt import CublasLt
from tuning.routes.library.cudnn import Cudnn
from tuning.routes.library.eager import Eager
from tuning.routes.library.mkl import Mkl
from tuning.routes.library.numpy_arrays import NumPyArrays
from tuning.routes.library.onednn import OneDnn
from tuning.routes.library.onnxruntime import OnnxRuntime
from tuning.routes.library.openblas import OpenBlas
from tuning.routes.manual.cpp import CppRoute
from tuning.routes.manual.cuda import CudaRoute

ROUTES: tuple[Route, ...] = (
    Eager(),
    OnnxRuntime(),
    OneDnn(),
    Mkl(),
    OpenBlas(),
    NumPyArrays(),
    CublasLt(),
    Cudnn(),
    TvmRoute(),
    HalideRoute(),
    XlaRoute(),
    InductorRoute(),
    TritonRoute(),
    CppRoute(),
    CudaRoute(),
)

DEFAULTS = ("eager", "onnxruntime")
"""What users have without us, the first that supports the operator."""


def routes_for(kind: str, only: Collection[str] = ()) -> tuple[Route, ...]:
    """Those that are for targets of a kind: a worker has no others. ``only``: none but these, where some are
    named, and defaults. Raises :class:`opatlas.conf.Misconfigured` for a name that no route has."""
    names = [one.name for one in ROUTES]
    if unknown := [name for name in only if name not in names]:
        raise Misconfigured(f"No route is called {unknown[0]!r}; there are {', '.join(names)}.")
    wanted = {*only, *DEFAULTS} if only else {*names}
    return tuple(one for one in ROUTES if kind in one.kinds and one.name in wanted)


def route(name: str) -> Route:
    """The route called ``name``; KeyError where there is none."""
    for one in ROUTES:
        if one.name == name:
            return one
    raise KeyError(f"no route is called {name!r}; there are {', '.join(one.name for one in ROUTES)}")


def default_candidate(operator: Operator, target: Target, setting: Setting) -> tuple[Route, Candidate] | None:
    """The default that everything is timed against: eager, else ONNX Runtime; None where neither can."""
    for name in DEFAULTS:
        default = route(name)
        if default.available(target) and default.supports(operator, setting):
            for candidate in default.candidates(operator, target, setting, Budget(seconds=1.0, candidates=1)):
                return default, candidate
    return None
