"""Which request fields a service understands. An older one refuses newer fields, and names those that it has.

Nobody asks beforehand. A request is sent with all its fields; if one that it can do without is refused, it is
sent again without it. This is remembered for all processes of the machine, and for some hours, since services
are upgraded.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from opatlas.client.cache.store import EntryStore, digest_of
from opatlas.errors import CallerError

T = TypeVar("T")

LOOKUP = "/api/v1/lookup"
OPTIONAL: Mapping[str, tuple[str, ...]] = {LOOKUP: ("wait_for", "include", "known", "revoked_since")}
"""By address: newer fields that a request can do without. Add new ones here and nowhere else. ``spend_limit``
and ``free_only`` are not among them: without the first a service would charge each lookup, without the second
it would charge at all."""
WORDS = ("include",)
"""Fields that are lists of words: single words may be newer as well."""
LEARNT_S = 4 * 3600.0
"""After this time a refused field is tried again."""
_UNKNOWN_FIELD = "There is no field "
_WORD = re.compile(r"[a-z_]+")


class ServiceCapabilities:
    """Of one service; ``store``: where the machine's processes keep what they learnt."""

    def __init__(self, store: EntryStore | None = None) -> None:
        self._store = store
        self._name = digest_of(["capabilities", store.service.hex()]) if store is not None else b""
        self._left_out: frozenset[str] | None = None  # "/api/v1/lookup include", "… include manifest"
        self._learnt_at = 0.0

    def takes(self, path: str, field: str) -> bool:
        """Whether it takes the field, as far as is known: everything until it refuses it."""
        return f"{path} {field}" not in self._unknown()

    def send(self, path: str, document: Any, send: Callable[[Any], T]) -> T:
        """The result of ``send`` for the document, or for the fields of it that the service understands."""
        if path not in OPTIONAL or not isinstance(document, Mapping):
            return send(document)
        while True:
            sent = self._understood(path, document)
            try:
                return send(sent)
            except CallerError as error:
                new = _refused(path, sent, error) - self._unknown()
                if not new:
                    raise
                self._learn(self._unknown() | new)

    def _understood(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        unknown = self._unknown()
        sent = {name: value for name, value in document.items() if f"{path} {name}" not in unknown}
        for name in WORDS:
            if name in sent:
                sent[name] = [word for word in sent[name] if f"{path} {name} {word}" not in unknown]
        return sent

    def _unknown(self) -> frozenset[str]:
        if self._left_out is None:
            kept = self._store.fact(self._name) if self._store is not None else None
            self._left_out = frozenset(kept["left_out"]) if kept is not None else frozenset()
            self._learnt_at = kept["learnt_at"] if kept is not None else 0.0
        if self._left_out and not 0 <= time.time() - self._learnt_at < LEARNT_S:
            self._left_out = frozenset()
        return self._left_out

    def _learn(self, left_out: frozenset[str]) -> None:
        self._left_out, self._learnt_at = left_out, time.time()
        if self._store is not None:
            document = {"left_out": sorted(left_out), "learnt_at": self._learnt_at}
            self._store.keep_fact(self._name, document)


def _refused(path: str, sent: Mapping[str, Any], error: CallerError) -> frozenset[str]:
    """The part of a request that a refusal names: "There is no field 'x': a lookup has job, …"."""
    where, sentence = error.where, str(error)
    if where not in OPTIONAL[path] or where not in sent:
        return frozenset()
    named = set(_WORD.findall(sentence.rpartition(":")[2]))
    if sentence.startswith(_UNKNOWN_FIELD):
        return frozenset(f"{path} {one}" for one in OPTIONAL[path] if one == where or one not in named)
    if where in WORDS:
        return frozenset(f"{path} {where} {word}" for word in sent[where] if word not in named)
    return frozenset()
