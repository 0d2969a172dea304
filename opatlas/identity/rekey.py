"""An operator kept under an older key version, under today's key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opatlas.identity.operator import Operator
from opatlas.identity.parse import parse_operator


def rekey(document: Mapping[str, Any]) -> Operator:
    """A stored operator (:meth:`Operator.to_json`'s document, of any key version) canonicalised anew.

    Goes the whole way from the document's own opset, so that a later canonical opset or rule takes hold.
    Pure: the caller moves rows to the new key. Raises :class:`opatlas.errors.InvalidOperator` where today's
    rules refuse what was once accepted.
    """
    return parse_operator(document)
