"""Small real operators, a target, and results as a worker would publish them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from opatlas.identity import Node, Operator, Setting, Target, Value
from opatlas.load import Manifest

TARGET = Target(
    kind="cpu",
    arch="zen5",
    vendor="AuthenticAMD",
    isa="x86_64",
    features=("avx2", "fma"),
    cache_bytes=(("l1d", 49152), ("l2", 1048576)),
    cores=4,
)
SETTING = Setting(threads=4)
GPU = Target(
    kind="cuda",
    arch="sm_90",
    vendor="nvidia",
    isa="ptx",
    features=(),
    cache_bytes=(("l2", 52428800),),
    product="NVIDIA H100 80GB HBM3",
    multiprocessors=132,
    memory_gib=80,
)


def relu(length: int) -> Operator:
    """A Relu over ``length`` float32 values, as canonicalising makes it."""
    value = Value("float32", (length,))
    return Operator(
        inputs=(value,),
        nodes=(Node("Relu", (0,), (1,)),),
        outputs=(1,),
        produced=(Value("float32", (length,)),),
    )


def relu_json(length: int) -> dict[str, Any]:
    """The same operator in the simple form that a caller may write."""
    return {"op": "Relu", "inputs": [{"shape": [length], "dtype": "float32"}]}


def new_result(place: Any, route: str, ratio: float, **changes: Any) -> Any:
    """A publication: ``route`` is ``ratio`` times as fast as the default, ± 1 %, unless ``changes`` say else.

    ``changes``: spread (the interval's half-width as a share), candidate, kind, needs, versions, files, …
    """
    from catalog.best.publishing import Publication
    from opatlas.evidence import Evidence

    spread = changes.pop("spread", 0.01)
    candidate = changes.pop("candidate", {"call": route})
    folder = changes.pop("folder", Path())
    manifest = Manifest(
        kind=changes.pop("kind", "recipe"),
        route=route,
        operator=place["operator"].graph,
        setting=place["setting"].description,
        files=changes.pop("files", {}),
        needs=changes.pop("needs", {"torch": "2.13.0"}),
        recipe={"library": "torch", "call": route, "candidate": candidate},
    )
    default_us = 100.0
    evidence = Evidence(
        median_us=default_us / ratio,
        spread_us=0.5,
        default_us=default_us,
        ratio_to_default=ratio,
        ratio_low=ratio * (1 - spread) if spread else ratio,
        ratio_high=ratio * (1 + spread) if spread else ratio,
        samples_us=(default_us / ratio,),
        max_error=changes.pop("max_error", 1e-7),
        tolerance=1e-5,
        tier="T2",
    )
    return Publication(
        **place,
        route=route,
        method=changes.pop("method", "library"),
        label=changes.pop("label", f"{route} {candidate}"),
        candidate=candidate,
        manifest=manifest,
        folder=folder,
        versions=changes.pop("versions", {"torch": "2.13.0"}),
        evidence=evidence,
        **changes,
    )


def write_file(folder: Path, name: str, content: bytes) -> dict[str, str]:
    """Put a file where a build would leave it; gives the manifest's ``files``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content)
    return {name: hashlib.sha256(content).hexdigest()}


def row_counts() -> dict[str, int]:
    """Rows of every table of the catalogue: what bad input must leave as it was."""
    from django.apps import apps

    return {
        model.__name__: model._default_manager.count()
        for name in ("catalog", "tuning")
        for model in apps.get_app_config(name).get_models()
    }
