"""Kind ``recipe``: a library call from an allow-list, with its parameters."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from opatlas.errors import InvalidOperator, LoadError
from opatlas.identity.operator import Operator
from opatlas.identity.rekey import rekey
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import Manifest

Allowed = Mapping[str, tuple[Any, ...] | type[int]]

ALLOWED: Mapping[tuple[str, str], Allowed] = {
    ("torch", "eager"): {
        "layout": ("contiguous", "channels_last"),
        "weights": ("plain", "transposed"),
        "onednn": (True, False),
        "form": ("plain", "product", "vector", "turned", "written_out"),
        "buffers": ("fresh", "kept"),
        "memory": ("mapped", "heap"),
        "device": ("cpu", "cuda"),
        "tf32": (False, True),
        "graphs": (False, True),
        "threads": int,
    },
    ("torch", "onednn"): {
        "layout": ("contiguous", "channels_last"),
        "weights": ("plain", "packed"),
        "epilogue": ("apart", "fused"),
        "memory": ("mapped", "heap"),
        "threads": int,
    },
    ("torch", "mkl"): {"weights": ("packed",), "memory": ("mapped", "heap"), "threads": int},
    # What PyTorch's users reach for when eager is slow: measured against, published by no route.
    ("torch", "compile"): {
        "mode": ("default", "max-autotune", "max-autotune-no-cudagraphs"),
        "device": ("cpu", "cuda"),
        "tf32": (False, True),
        "graphs": (False, True),
        "threads": int,
    },
    ("cublaslt", "matmul"): {
        "device": ("cuda",),
        "algorithm": tuple(range(1, 33)),
        "tf32": (False, True),
        "graphs": (False, True),
    },
    ("cudnn", "graph"): {
        "device": ("cuda",),
        "plan": tuple(range(1, 33)),
        "tf32": (False, True),
        "graphs": (False, True),
    },
    ("onnxruntime", "session"): {
        "graph_optimization": ("all", "extended", "basic", "disabled"),
        "constants": ("initializers", "inputs"),
        "strided": ("copied", "turned"),
        "execution": ("sequential", "parallel"),
        "prepacking": (True, False),
        "threads": int,
    },
    ("numpy", "matmul"): {"weights": ("plain", "transposed"), "threads": int},
    ("numpy", "arrays"): {},
}
"""(library, call) → its parameters and their values, the default first; ``int``: 1 to 1024. Any other recipe
is refused: a manifest must never choose what Python runs."""

_LOADERS = {
    "torch": "opatlas.load.torch.recipe",
    "onnxruntime": "opatlas.load.onnxruntime_recipe",
    "numpy": "opatlas.load.numpy_recipe",
}
_OWN_LOADERS = {("torch", "compile"): "opatlas.load.torch.compile"}
_ON_DEVICE = {
    "torch": "opatlas.load.torch.on_device",
    "cublaslt": "opatlas.load.cuda.cublaslt",
    "cudnn": "opatlas.load.cuda.cudnn",
}


def check_recipe(recipe: Mapping[str, Any] | None, threads: int) -> dict[str, Any]:
    """The recipe with its defaults filled in; :class:`LoadError` for anything that is not on the list."""
    if not recipe:
        raise LoadError("a recipe artifact states its call under 'recipe'")
    name = (str(recipe.get("library")), str(recipe.get("call")))
    allowed = ALLOWED.get(name)
    if allowed is None:
        known = ", ".join(f"{library} {call}" for library, call in ALLOWED)
        raise LoadError(f"call {' '.join(name)!r} is not on the list of allowed calls: {known}")
    parameters = {key: value for key, value in recipe.items() if key not in ("library", "call")}
    for key, value in parameters.items():
        if key not in allowed:
            raise LoadError(f"call {' '.join(name)!r} has no parameter {key!r}; it has {', '.join(allowed)}")
        _check_value(key, value, allowed[key])
    defaults = {key: threads if rule is int else rule[0] for key, rule in allowed.items()}  # type: ignore[index]
    return {"library": name[0], "call": name[1], **defaults, **parameters}


def _check_value(key: str, value: Any, rule: tuple[Any, ...] | type[int]) -> None:
    if isinstance(rule, tuple):
        if not any(type(value) is type(choice) and value == choice for choice in rule):
            raise LoadError(f"parameter {key!r} is {value!r}; it can be {', '.join(map(str, rule))}")
    elif not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= 1024:
        raise LoadError(f"parameter {key!r} is {value!r}; it is a number from 1 to 1024")


def _canonical(document: Mapping[str, Any]) -> Operator:
    """Loaders rely on the canonical form: all defaults written out, axes counted from the front, shapes
    known."""
    try:
        operator = Operator.from_json(document)
        if rekey(document).key == operator.key:
            return operator
    except (InvalidOperator, KeyError, TypeError, ValueError) as error:
        raise LoadError(f"its operator cannot be read: {error}") from error
    raise LoadError("its operator is not in today's canonical form: it has to be explored again")


def _loader_of(recipe: Mapping[str, Any]) -> str:
    """The module whose ``open_kernel`` makes the call."""
    library = recipe["library"]
    if own := _OWN_LOADERS.get((library, recipe["call"])):
        return own
    return (_LOADERS if recipe.get("device", "cpu") == "cpu" else _ON_DEVICE)[library]


def with_threads_of(parameters: Mapping[str, Any], made_for: int, threads: int) -> dict[str, Any]:
    """A call's parameters for another number of threads: all of them if it used all of its own, else its own
    number, up to that many."""
    had = parameters.get("threads", made_for)
    if not isinstance(had, int) or "threads" not in parameters:
        return dict(parameters)
    return {**parameters, "threads": threads if had == made_for else min(had, threads)}


def load_recipe(manifest: Manifest, files: Mapping[str, bytes], threads: int | None = None) -> LoadedKernel:
    """The kernel that makes the manifest's library call, on so many ``threads`` (its setting's, unless
    given: :func:`opatlas.load.loader.load` does)."""
    if files:
        raise LoadError("a recipe has no files")
    made_for = int(manifest.setting["threads"])
    parameters = manifest.recipe
    if parameters and threads is not None:
        parameters = with_threads_of(parameters, made_for, threads)
    recipe = check_recipe(parameters, made_for if threads is None else threads)
    operator = _canonical(manifest.operator)
    try:
        module = importlib.import_module(_loader_of(recipe))
    except ImportError as error:
        raise LoadError(f"needs {recipe['library']}, which cannot be imported: {error}") from error
    kernel: LoadedKernel = module.open_kernel(operator, recipe)
    return kernel
