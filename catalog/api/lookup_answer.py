"""A lookup's answer as JSON, written by hand: it is the hot path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catalog import models
from catalog.best.revoked import ENTRY_LIFE_S, Revocations
from catalog.best.served import Hit
from catalog.charging import Terms
from catalog.conf import conf
from catalog.lookup.lookups import LookupAnswer
from catalog.lookup.results import Result
from opatlas.evidence import TIMES


def answer_json(answer: LookupAnswer, revocations: Revocations) -> dict[str, Any]:
    """What ``POST /lookup`` answers."""
    body: dict[str, Any] = {
        "target": answer.target.key,
        "setting": answer.setting.key,
        "served": answer.served,
        "entry_life_s": ENTRY_LIFE_S,
        "revoked": revocations.artifacts,
        "results": [result_json(result) for result in answer.results],
    }
    if answer.related:
        body["related"] = [result_json(result) for result in answer.related]
    if answer.next:
        body["next"] = [result_json(result) for result in answer.next]
    if answer.evidence:
        for name in ("results", "related", "next"):
            _add_evidence(body.get(name, ()), answer.evidence)
    if answer.artifacts:
        body["manifests"] = {row.sha256: manifest_json(row) for row in answer.artifacts}
    if answer.unchanged is not None:
        body["unchanged"] = answer.unchanged
    if answer.signers:
        body["signers"] = {row.sha256: signer_json(row) for row in answer.signers}
    if revocations.until:
        body["revoked_until"] = revocations.until
    if revocations.all:
        body["revoked_all"] = True
    if not answer.served:
        body["note"] = unserved_note(answer.target)
    return body


def _add_evidence(items: Sequence[dict[str, Any]], evidence: Mapping[int, Mapping[str, Any]]) -> None:
    for item in items:
        if "best" in item and (known := evidence.get(item["best"]["implementation"])) is not None:
            item["best"]["evidence"] = known


def manifest_json(row: models.Artifact) -> dict[str, Any]:
    """A manifest with what vouches for it."""
    return {"manifest": row.manifest, "signature": row.signature, "signer": row.signer}


def signer_json(row: models.Signer) -> dict[str, Any]:
    retired_at = row.retired_at.isoformat() if row.retired_at else None
    return {"public_key": row.public_key, "retired_at": retired_at}


def unserved_note(target: models.Target) -> str:
    return f"No live worker serves {target.capability}: misses wait until one starts."


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
    """A charged hit, with its price; or an empty item that says what is to be had for it, and no address."""
    item: dict[str, Any] = {"key": result.key, "status": result.status, "price": terms.as_json()}
    item |= _progress_json(result, best)
    if not terms.withheld:
        return item | {"best": hit_json(best)}
    shown = ("implementation", "route", "method", "is_default", *TIMES, "measured_at")
    evidence = {name: value for name, value in hit_json(best).items() if name in shown}
    return item | {"state": result.state, "reason": result.reason, "withheld": evidence}


def _progress_json(result: Result, best: Hit) -> dict[str, Any]:
    """How far exploring has come; with another target's best not at all, and a worker may appear any
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
    """Of what may change any moment."""
    return min(conf().open_entry_s, ENTRY_LIFE_S)


def hit_json(hit: Hit) -> dict[str, Any]:
    """A best implementation with its evidence. Its moment is left to who writes JSON: a model's would take as
    long as all the rest of this."""
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
