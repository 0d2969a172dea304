"""Operators by the names that callers give them, each read once in a process and on a machine."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from opatlas.client.asking import Asked, alias_of, describe_call, document_of, read, signature
from opatlas.client.cache.store import EntryStore
from opatlas.errors import InvalidOperator, UnmappedOperator
from opatlas.identity.operator import Operator, canonical_json

MOST_IN_MEMORY = 1 << 16
KEY = re.compile(r"o1:[0-9a-f]{64}")


class OperatorNames:
    """Earlier names: by signature, by alias, and by key."""

    def __init__(self, store: EntryStore | None) -> None:
        self._store = store
        self._known: dict[Any, Asked] = {}

    def asked(
        self, operator: Any, inputs: Sequence[Any], const: Sequence[int], attrs: Mapping[str, Any]
    ) -> Asked:
        """The named operator with its key: from memory, from the machine's cache, or read (which takes ONNX).
        Inputs without possible entries give what is ``unmapped``."""
        if inputs:
            signed = signature(operator, inputs, const, attrs)
            try:
                return self._known[signed]
            except (KeyError, TypeError):  # unknown, or not hashable
                pass
            try:
                asked = self._read(describe_call(operator, inputs, const, attrs))
            except UnmappedOperator as error:
                asked = Asked("", unmapped=error)
            return asked if signed is None else self._remember(signed, asked)
        if isinstance(operator, Asked):
            return operator
        if isinstance(operator, str):
            if (known := self._known.get(operator)) is not None:
                return known
            if not KEY.fullmatch(operator):
                raise InvalidOperator(
                    f"An operator's key is o1: and 64 hexadecimal digits, not {operator[:80]!r}; a type such "
                    "as 'Relu' is followed by its inputs."
                )
            return self._remember(operator, Asked(operator))
        if isinstance(operator, Operator):
            known = self._known.get(operator.key)
            if known is not None and known.document is not None:
                return known
            self._known.pop(operator.key, None)  # it was asked for by its key alone
            return self._remember(operator.key, Asked(operator.key, operator.to_json()))
        return self._read(document_of(operator))

    def forget(self) -> None:
        self._known.clear()

    def _read(self, document: Mapping[str, Any]) -> Asked:
        alias = alias_of(document)
        if (known := self._known.get(alias)) is not None:
            return known
        found = self._store.alias(alias) if self._store is not None else None
        if found is None:
            found = read(document)
            if self._store is not None:
                self._store.keep_alias(alias, *found)
        own = json.loads(canonical_json(document))  # the caller may go on with theirs
        return self._remember(alias, Asked(found[0], own, found[1]))

    def _remember(self, name: Any, asked: Asked) -> Asked:
        if len(self._known) >= MOST_IN_MEMORY:
            self._known.clear()
        try:
            return self._known.setdefault(name, asked)
        except TypeError:
            return asked
