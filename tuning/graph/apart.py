"""Takes a model's bytes apart: its operators with counts, and its structure if it has one. PURE.

The bytes are untrusted. Uploads are taken apart by a child in a sandbox (``apart_main``), which returns JSON;
its reader trusts that no more than a caller's.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from opatlas.errors import InvalidModel
from opatlas.graph import Extraction
from opatlas.graph.normal import ModelGraph
from opatlas.graph.read import MAX_NODES
from opatlas.graph.structure import ModelStructure, structure_of
from opatlas.identity.operator import canonical_json
from tuning.graph.operator_list import extract_list

log = logging.getLogger("opatlas.tuning")


@dataclass(frozen=True)
class TakenApart:
    """``form``: onnx, operator-list or operator-list-f32. ``structure``: as stored; None for an operator
    list, or a model beyond the bounds of structures."""

    form: str
    extraction: Extraction
    structure: ModelStructure | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "form": self.form,
            "operators": [
                {"graph": found.operator.to_json(), "calls": found.calls, "example": found.example}
                for found in self.extraction.operators
            ],
            "unmapped": dict(self.extraction.unmapped),
            "structure": base64.b64encode(self.structure.packed()).decode() if self.structure else None,
        }


def take_apart(
    data: bytes, dims: Mapping[str, int], as_float32: bool, *, max_nodes: int = MAX_NODES
) -> TakenApart:
    """JSON begins with a bracket, and no ONNX file does. Raises :class:`InvalidModel`."""
    if not data:
        raise InvalidModel("The model is empty: send an ONNX file, or an operator list as JSON.")
    if data.lstrip()[:1] in (b"[", b"{"):
        form = "operator-list-f32" if as_float32 else "operator-list"
        return TakenApart(form, extract_list(data, dims, as_float32=as_float32))
    graph = ModelGraph(data, dims, max_nodes=max_nodes)
    return TakenApart("onnx", graph.extraction(), _structure(graph))


def _structure(graph: ModelGraph) -> ModelStructure | None:
    """None for a model beyond the bounds of structures; it still has operators."""
    try:
        return structure_of(graph)
    except InvalidModel as error:
        log.info("A model's structure is not kept: %s", error)
        return None


def content_sha256(of_bytes: Any, dims: Mapping[str, int], as_float32: bool) -> str:
    """Of the bytes (``of_bytes``: a hash that has seen them), and of wishes that change the result, if
    any."""
    wishes = {**({"dims": dict(dims)} if dims else {}), **({"as_float32": True} if as_float32 else {})}
    digest = of_bytes.copy()
    if wishes:
        digest.update(canonical_json(wishes))
    return str(digest.hexdigest())
