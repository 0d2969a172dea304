"""From a target's raw CPU features to Halide's target, and the autoschedulers' plug-ins."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from opatlas.identity import Setting, Target
from tuning.routes.compiler.halide.table import used_levels

AUTOSCHEDULERS = ("Adams2019", "Mullapudi2016", "Li2018")
_TUNES = {f"zen{number}": f"TuneZnVer{number}" for number in (2, 3, 4, 5)} | {"zen": "TuneZnVer1"}
_DEFAULT_CACHE_BYTES = 1 << 20
_loaded = False


def import_halide() -> Any:
    """The ``halide`` module with the three CPU autoschedulers loaded. Starts no thread."""
    global _loaded
    halide = importlib.import_module("halide")
    if not _loaded:
        folder = Path(str(halide.__file__)).parent / "lib64"
        for name in AUTOSCHEDULERS:
            halide.load_plugin(str(folder / f"libautoschedule_{name.lower()}.so"))
        _loaded = True
    return halide


def halide_target(target: Target, *, strict: bool) -> Any:
    """``hl.Target`` of exactly these features: nothing is read off the machine that compiles."""
    hl = import_halide()
    names = [*used_levels(target)[0], "NoRuntime", "UserContext", *(["StrictFloat"] if strict else [])]
    tune = getattr(hl.TargetProcessorTune, _TUNES.get(target.arch, "TuneGeneric"))
    features = [getattr(hl.TargetFeature, name) for name in names]
    return hl.Target(hl.TargetOS.Linux, hl.TargetArch.X86, 64, tune, features)


def autoscheduler_attempts(name: str, target: Target, setting: Setting) -> list[dict[str, str]]:
    """What the autoscheduler is told: of the machine, and how to search. The first search that ends well
    counts; others than Adams2019 have one."""
    parameters = {"parallelism": str(setting.threads)}
    if name == "Mullapudi2016":
        caches = dict(target.cache_bytes)
        bytes_ = caches.get("l3", caches.get("l2", _DEFAULT_CACHE_BYTES))
        return [parameters | {"last_level_cache_size": str(bytes_), "balance": "40"}]
    if name == "Adams2019":
        coarse = parameters | {"disable_subtiling": "1"}
        return [parameters, coarse, coarse | {"beam_size": "8"}, coarse | {"beam_size": "1"}]
    return [parameters]
