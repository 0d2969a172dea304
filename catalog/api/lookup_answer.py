"""A lookup's answer as JSON, written by hand: it is the hot path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from catalog import models
from catalog.best.revoked import ENTRY_LIFE_S, Revocations
from catalog.best.served import Hit
from catalog.charging import Terms
from catalog.conf import conf
from catalog.lookup.lookups import LookupAnswer
from catalog.lookup.results import Result
from opatlas.evidence import TIMES
from opatlas.quick_json import json_bytes


class PlaceWords(NamedTuple):
    """Target and setting in the words of an answer."""

    target: str
    setting: str
    capability: str

    @classmethod
    def of(cls, target: models.Target, setting: models.Setting) -> Self:
        return cls(target.key, setting.key, target.capability)


def answer_text(answer: LookupAnswer, revocations: Revocations) -> bytes:
    """The answer to ``POST /lookup``."""
    results, related, coming = (
        [result_text(result, answer.evidence) for result in some]
        for some in (answer.results, answer.related, answer.next)
    )
    manifests = {row.sha256: json_bytes(manifest_json(row)) for row in answer.artifacts}
    signers = {row.sha256: json_bytes(signer_json(row)) for row in answer.signers}
    unchanged = answer.unchanged
    place = PlaceWords.of(answer.target, answer.setting)
    parts = beside(results, related, coming, manifests=manifests, unchanged=unchanged, signers=signers)
    return joined(place, answer.served, revocations, parts)


def best_text(answer: LookupAnswer, revocations: Revocations) -> bytes:
    """The answer to ``GET /operators/{key}/best``: one result, with the other fields of a lookup's answer."""
    (result,) = answer.results
    place = PlaceWords.of(answer.target, answer.setting)
    return joined_best(result_text(result), joined(place, answer.served, revocations, []))


def joined_best(result: bytes, lookup: bytes) -> bytes:
    """One written result, with a lookup's answer around it."""
    return result[:-1] + b"," + lookup[1:]


def joined(place: PlaceWords, served: bool, revocations: Revocations, parts: Sequence[bytes]) -> bytes:
    """An answer of parts that are written already: ``parts`` are ``beside``'s. Answers from the database and
    from memory both come through here."""
    fields = [
        b'{"target":%b,"setting":%b' % (json_bytes(place.target), json_bytes(place.setting)),
        b'"served":true' if served else b'"served":false',
        b'"entry_life_s":%d' % ENTRY_LIFE_S,
        b'"revoked":%b' % (json_bytes(revocations.artifacts) if revocations.artifacts else b"[]"),
        *parts,
    ]
    if revocations.until:
        fields.append(b'"revoked_until":%b' % json_bytes(revocations.until))
    if revocations.all:
        fields.append(b'"revoked_all":true')
    if not served:
        fields.append(b'"note":%b' % json_bytes(unserved_note(place.capability)))
    return b",".join(fields) + b"}"


def beside(
    results: Sequence[bytes],
    related: Sequence[bytes] = (),
    coming: Sequence[bytes] = (),
    *,
    manifests: Mapping[str, bytes],
    unchanged: Sequence[str] | None,
    signers: Mapping[str, bytes],
) -> list[bytes]:
    """The non-empty parts of an answer beside the results."""
    parts = [b'"results":[%b]' % b",".join(results)]
    if related:
        parts.append(b'"related":[%b]' % b",".join(related))
    if coming:
        parts.append(b'"next":[%b]' % b",".join(coming))
    if manifests:
        parts.append(b'"manifests":%b' % _by_address(manifests))
    if unchanged is not None:
        parts.append(b'"unchanged":%b' % json_bytes(unchanged))
    if signers:
        parts.append(b'"signers":%b' % _by_address(signers))
    return parts


def _by_address(texts: Mapping[str, bytes]) -> bytes:
    """In the order of addresses: a database may return rows in any."""
    return b"{%b}" % b",".join(b'"%b":%b' % (sha256.encode(), texts[sha256]) for sha256 in sorted(texts))


def result_text(result: Result, evidence: Mapping[int, Mapping[str, Any]] | None = None) -> bytes:
    """One item, written by itself so that it can be cached by itself."""
    item = result_json(result)
    if evidence and "best" in item and (known := evidence.get(item["best"]["implementation"])) is not None:
        item["best"]["evidence"] = known
    return json_bytes(item)


def manifest_json(row: models.Artifact) -> dict[str, Any]:
    """A manifest with its signature and signer."""
    return {"manifest": row.manifest, "signature": row.signature, "signer": row.signer}


def signer_json(row: models.Signer) -> dict[str, Any]:
    retired_at = row.retired_at.isoformat() if row.retired_at else None
    return {"public_key": row.public_key, "retired_at": retired_at}


def unserved_note(capability: str) -> str:
    return f"No live worker serves {capability}: misses wait until one starts."


def result_json(result: Result) -> dict[str, Any]:
    if result.terms is not None and result.best is not None:
        return _priced_json(result, result.best, result.terms)
    if result.status == "need_lookup":
        return {"key": result.key, "status": "need_lookup"}
    if result.best is not None:
        progress = _progress_json(result, result.best)
        return {"key": result.key, "status": "hit", **progress, "best": hit_json(result.best)}
    if result.status == "need_graph":
        return {"key": result.key, "status": "need_graph"}
    return {"key": result.key, "status": "miss", "state": result.state, "reason": result.reason}


def _priced_json(result: Result, best: Hit, terms: Terms) -> dict[str, Any]:
    """A charged hit with its price; or an empty item that says what can be had for it, without an address."""
    item: dict[str, Any] = {"key": result.key, "status": result.status, "price": terms.as_json()}
    item |= _progress_json(result, best)
    if not terms.withheld:
        return item | {"best": hit_json(best)}
    shown = ("implementation", "route", "method", "is_default", *TIMES, "measured_at")
    evidence = {name: value for name, value in hit_json(best).items() if name in shown}
    return item | {"state": result.state, "reason": result.reason, "withheld": evidence}


def _progress_json(result: Result, best: Hit) -> dict[str, Any]:
    """How far exploring has come. For another target's best it has not begun, and a worker may appear at any
    moment."""
    near = result.neighbour
    if near is None:
        return stage_json(best)
    differs = {name: {"asked": ours, "neighbour": theirs} for name, (ours, theirs) in near.differs.items()}
    mark = {"target": near.target, "differs": differs}
    return {"final": False, "expires_s": _open_life_s(), "from_neighbour": mark}


def stage_json(hit: Hit) -> dict[str, Any]:
    """How far exploring has come, and so how long the answer may be used."""
    return {
        "stage": hit.stage,
        "final": hit.final,
        "expires_s": ENTRY_LIFE_S if hit.final else _open_life_s(),
    }


def _open_life_s() -> float:
    """The life of an answer that may change at any moment."""
    return min(conf().open_entry_s, ENTRY_LIFE_S)


def hit_json(hit: Hit) -> dict[str, Any]:
    """A best implementation with its evidence. The JSON writer formats its date: doing that here would take
    as long as all the rest."""
    return {
        "implementation": hit.implementation_id,
        "route": hit.route,
        "method": hit.method,
        "label": hit.label,
        "is_default": hit.is_default,
        "equal": hit.equal,
        "kind": hit.kind,
        "artifact": hit.artifact_sha256,
        "url": f"/api/v1/artifacts/{hit.artifact_sha256}",
        "median_us": hit.median_us,
        "spread_us": hit.spread_us,
        "default_us": hit.default_us,
        "ratio_to_default": hit.ratio_to_default,
        "ratio_low": hit.ratio_low,
        "ratio_high": hit.ratio_high,
        "measured_at": hit.measured_at,
    }
