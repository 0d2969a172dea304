"""Which sources are our own: those that this package ships, known by the hash of what is compiled.

The files themselves are asked, not the database: what is stored there, others wrote.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import tuning

EXAMPLES = Path(tuning.__file__).parent / "kernels" / "examples"
_LAUNCH = {
    "run": [
        {
            "function": "relu",
            "grid": ["ceil(IN0_SIZE, 256)", 1, 1],
            "block": [256, 1, 1],
            "arguments": [{"input": 0}, {"output": 0}],
        }
    ]
}
_PROOFS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "cpp": ("proof.c", {"language": "c", "flags": ["-O1"]}),
    "cuda": ("proof.cu", {"language": "cuda", "flags": [], "launch": _LAUNCH}),
}


def proof_of(route: str) -> dict[str, Any]:
    """A Relu for any device, as a candidate's parameters: building and running it shows that the route
    works."""
    name, parameters = _PROOFS[route]
    return {**parameters, "source": Path(__file__).with_name(name).read_text()}


def is_own(source: str) -> bool:
    """Whether this is, byte for byte, a source that comes with the package."""
    return hashlib.sha256(source.encode()).hexdigest() in _own()


@cache
def _own() -> frozenset[str]:
    proofs = (Path(__file__).with_name(name) for name, _ in _PROOFS.values())
    sources = (*proofs, *(path for path in EXAMPLES.rglob("*") if path.suffix in (".c", ".cc", ".cu")))
    return frozenset(hashlib.sha256(path.read_bytes()).hexdigest() for path in sources)
