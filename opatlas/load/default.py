"""An operator's default: what a job would run without Opatlas, by an installed library."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from opatlas.errors import LoadError, first_line
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import Manifest
from opatlas.load.package import BUILT_FOR
from opatlas.load.recipe import load_recipe

CALLS: tuple[Mapping[str, Any], ...] = (
    {"library": "torch", "call": "eager"},
    {"library": "onnxruntime", "call": "session"},
    {"library": "numpy", "call": "matmul"},
    {"library": "numpy", "call": "arrays"},
)
"""The first one that can: in the order in which workers choose their default, and then NumPy."""


Where = Literal["device", "host"]
"""Where a default computes: on the artifact's kind of device, or on the CPU."""
ANYWHERE: tuple[Where, ...] = ("device", "host")


def load_default(
    failed: Manifest, constants: Mapping[int, Any] | None, where: Sequence[Where] = ("host",)
) -> LoadedKernel:
    """The same operator and setting by a library's plain call, with its constants (None: they come later),
    but never by the call that has failed. Raises :class:`LoadError` if none of the libraries is installed."""
    reasons = []
    calls = {"device": _calls_on_device(failed), "host": CALLS}
    for call in itertools.chain.from_iterable(calls[one] for one in where):
        if _is_the_call(failed.recipe, call):
            continue
        manifest = Manifest("recipe", "default", failed.operator, failed.setting, recipe=call)
        try:
            kernel = load_recipe(manifest, {})
            if constants is not None:
                kernel.prepare(constants)
            return kernel
        except (LoadError, RuntimeError) as error:  # PyTorch's, where a fault has taken the device away
            reasons.append(f"{call['library']}: {first_line(error)}")
    raise LoadError(f"its default cannot be run here either ({'; '.join(reasons) or 'there is no other'})")


def _calls_on_device(failed: Manifest) -> tuple[Mapping[str, Any], ...]:
    """None if an artifact computes on the CPU."""
    recipe, setting = failed.recipe or {}, failed.setting
    if not (failed.kind == "cuda-module" or recipe.get("device") == "cuda" or BUILT_FOR in failed.files):
        return ()
    how = {"tf32": bool(setting.get("tf32")), "graphs": bool(setting.get("graphs"))}
    return ({"library": "torch", "call": "eager", "device": "cuda", **how},)


def _is_the_call(recipe: Mapping[str, Any] | None, call: Mapping[str, Any]) -> bool:
    plain = {"library": "", "call": "", "device": "cpu"}
    return all((recipe or {}).get(name, plain[name]) == call.get(name, plain[name]) for name in plain)
