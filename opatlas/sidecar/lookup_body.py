"""A lookup's JSON, as jobs' clients send it. What is said in any other way (a target by its key, how often
an operator is called, fields that came later) is the service's to answer. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from opatlas.client.answer import SHA256
from opatlas.client.asking import Asked
from opatlas.client.base import NEIGHBOURS
from opatlas.client.naming import KEY
from opatlas.client.steps import STAGES
from opatlas.errors import CallerError
from opatlas.identity.place.setting import Setting
from opatlas.identity.place.target import Target

FIELDS = {
    *(
        "target",
        "setting",
        "job",
        "accepts",
        "operators",
        "related",
        "wait_s",
        "wait_for",
        "include",
        "known",
    ),
    "revoked_since",
}
WISHES = {"manifest", "related", "evidence", "next", *NEIGHBOURS}
MOST_OPERATORS = 1024
LONGEST_JOB = 200


class PassedOn(Exception):
    """A lookup that is passed on as it came."""


@dataclass(frozen=True)
class LookupBody:
    place: tuple[Target, Setting | None]
    job: str
    accepts: Mapping[str, Any]
    asked: Sequence[Asked]
    related: Sequence[Asked]
    wait_s: float
    wait_for: str
    include: frozenset[str]
    known: frozenset[str]


def read_lookup(document: Any, read_graph: Callable[[Mapping[str, Any]], Asked]) -> LookupBody:
    """Raises :class:`PassedOn`; :class:`opatlas.errors.CallerError` for an operator that is none.
    ``read_graph`` gives the operator that is described without its key."""
    _check(isinstance(document, dict) and document.keys() <= FIELDS)
    setting, job = document.get("setting"), document.get("job", "")
    wait_s, wait_for = document.get("wait_s", 0), document.get("wait_for", STAGES[0])
    accepts, include = document.get("accepts") or {}, document.get("include", [])
    known, since = document.get("known", []), document.get("revoked_since", "")
    _check(isinstance(document.get("target"), dict) and isinstance(setting, dict | None))
    _check(isinstance(job, str) and len(job) <= LONGEST_JOB and job.isprintable())
    _check(type(wait_s) in (int, float) and wait_s >= 0 and wait_for in STAGES)
    _check(isinstance(since, str) and isinstance(accepts, dict) and _are_texts(include) and _are_texts(known))
    _check(set(include) <= WISHES and all(map(SHA256.fullmatch, known)))
    try:
        target = Target.from_json(document["target"])
        place = target, None if setting is None else Setting.from_json(setting)
    except CallerError as error:
        raise PassedOn from error  # which says it better
    lists = {name: document.get(name, []) for name in ("operators", "related")}
    _check(all(isinstance(items, list) and len(items) <= MOST_OPERATORS for items in lists.values()))
    _check(bool(lists["operators"]) or bool(lists["related"] and "related" in include))
    asked, related = (
        [_asked(item, f"{name}[{number}]", read_graph) for number, item in enumerate(items)]
        for name, items in lists.items()
    )
    beside = frozenset(include), frozenset(known)
    return LookupBody(place, job, accepts, asked, related, float(wait_s), wait_for, *beside)


def _asked(item: Any, where: str, read_graph: Callable[[Mapping[str, Any]], Asked]) -> Asked:
    _check(isinstance(item, dict) and bool(item) and item.keys() <= {"key", "graph"})
    key, graph = item.get("key"), item.get("graph")
    _check(
        isinstance(graph, dict | None)
        and (key is None or (isinstance(key, str) and bool(KEY.fullmatch(key))))
    )
    if key is not None:
        return Asked(key, graph)
    try:
        return read_graph(graph)
    except CallerError as error:
        error.where = f"{where}.graph"
        raise


def _are_texts(found: Any) -> bool:
    return isinstance(found, list) and all(isinstance(one, str) for one in found)


def _check(right: bool) -> None:
    if not right:
        raise PassedOn
