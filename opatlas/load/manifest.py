"""The manifest: what an artifact is and needs, known before it is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, get_args

from opatlas.identity.operator import canonical_json

Kind = Literal["c-abi", "cuda-module", "package", "recipe"]
KINDS: tuple[str, ...] = get_args(Kind)
BUILT_FOR_THREADS = "package"
"""The kind whose code may have its number of threads built in: it runs with exactly that many."""


@dataclass(frozen=True)
class Manifest:
    """Content-addressed description of one artifact; JSON only, no pickle anywhere.

    ``operator`` and ``setting``: their canonical JSON. ``files``: plain names → SHA-256 (hexadecimal).
    ``needs``: distributions → the exact versions that must be installed (``{"torch": "2.13.0"}``).
    ``features``: CPU features that the code uses. ``recipe``: the call, for kind ``recipe``: ``{"library":
    "torch", "call": …, parameters}``. ``launch``: the launch plan, for kind ``cuda-module``
    (:mod:`opatlas.load.cuda.plan`). ``provenance``: how it was built, by and for whom
    (``tuning.measure.provenance``). Manifests that were signed without one of the last two keep their bytes.
    """

    kind: Kind
    route: str
    operator: Mapping[str, Any]
    setting: Mapping[str, Any]
    files: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, str] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    alignment: int = 64
    recipe: Mapping[str, Any] | None = None
    provenance: Mapping[str, Any] | None = None
    launch: Mapping[str, Any] | None = None

    @property
    def sha256(self) -> str:
        """The artifact's address: SHA-256 of :meth:`to_bytes`."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    def to_bytes(self) -> bytes:
        """The canonical bytes that are hashed and signed."""
        return canonical_json(self.to_json())

    def to_json(self) -> dict[str, Any]:
        document = asdict(self) | {"features": list(self.features)}
        for name in _CAME_LATER:
            if document[name] is None:
                del document[name]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Manifest:
        given = {field.name: document[field.name] for field in fields(cls) if field.name not in _CAME_LATER}
        given |= {name: document.get(name) for name in _CAME_LATER}
        given |= {name: dict(given[name]) for name in ("operator", "setting", "files", "needs")}
        if given["recipe"] is not None:
            given["recipe"] = dict(given["recipe"])
        return cls(**{**given, "features": tuple(document["features"])})


_CAME_LATER = ("provenance", "launch")
