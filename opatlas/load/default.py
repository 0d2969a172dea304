"""The default of an operator: what a job has without us, whichever library of it is installed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opatlas.errors import LoadError
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import Manifest
from opatlas.load.recipe import load_recipe

CALLS: tuple[Mapping[str, Any], ...] = (
    {"library": "torch", "call": "eager"},
    {"library": "onnxruntime", "call": "session"},
    {"library": "numpy", "call": "matmul"},
    {"library": "numpy", "call": "arrays"},
)
"""The first that can: as workers choose what they time everything against, and then NumPy."""


def load_default(failed: Manifest, constants: Mapping[int, Any] | None) -> LoadedKernel:
    """The same operator under the same setting by a library's plain call, given its constants (None: they
    come later), and never by the very call that has failed. Raises :class:`LoadError` where none of the
    libraries is here."""
    reasons = []
    for call in _other_calls(failed):
        manifest = Manifest("recipe", "default", failed.operator, failed.setting, recipe=call)
        try:
            kernel = load_recipe(manifest, {})
            if constants is not None:
                kernel.prepare(constants)
            return kernel
        except LoadError as error:
            reasons.append(f"{call['library']}: {error}")
    raise LoadError(f"its default cannot be run here either ({'; '.join(reasons)})")


def _other_calls(failed: Manifest) -> Iterator[Mapping[str, Any]]:
    for call in CALLS:
        mine = {name: (failed.recipe or {}).get(name) for name in call}
        if mine != call:
            yield call
