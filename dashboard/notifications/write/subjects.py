"""What can be watched: found, checked that the person may see it, and named so that people recognise it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from catalog.errors import RequestError, Unknown
from catalog.models import Job, Method, Model, Operator, Setting
from catalog.search import Words
from catalog.selectors.targets import target_named
from catalog.viewing import BILL, Viewer
from dashboard.notifications.models import SubjectKind
from dashboard.notifications.write.wording import shortened

FILTERS = ("q", "op_type", "dtype", "method", "target")
_FILTER_CHARACTERS = 200
_FILTER_NAMES = {"q": "matching", "op_type": "type", "dtype": "of", "method": "best by", "target": "on"}


@dataclass(frozen=True)
class NamedSubject:
    """A subject: ``key`` names it, ``fields`` are the subscription's columns."""

    subject: SubjectKind
    key: str
    title: str
    fields: dict[str, Any] = field(default_factory=dict)


def operator(key: str, target: str = "", setting: str = "") -> NamedSubject:
    """An operator by key, anywhere or in one place (keys of a target and a setting)."""
    row = Operator.objects.only("summary").filter(key=_text(key, "operator")).first()
    if row is None:
        raise Unknown("No operator has this key.", where="operator")
    place: dict[str, Any] = {"target": None, "setting": None}
    title = row.summary
    if target:
        place["target"] = target_named(_text(target, "target"))
        title += f" on {place['target'].capability}"
    if setting:
        place["setting"] = Setting.objects.filter(key=_text(setting, "setting")).first()
        if place["setting"] is None:
            raise Unknown("No setting has this key.", where="setting")
        title += f", {place['setting']}"
    ids = ":".join(str(one.pk) if one else "" for one in place.values())
    return NamedSubject(
        SubjectKind.OPERATOR, f"operator:{row.pk}:{ids}", title[:300], {"operator": row, **place}
    )


def job(viewer: Viewer, number: int) -> NamedSubject:
    """One of the viewer's jobs."""
    row = Job.objects.filter(viewer.owned()).exclude(name="").filter(pk=number).first()
    if row is None:
        raise Unknown(f"You have no job {number}.", where="job")
    return NamedSubject(SubjectKind.JOB, f"job:{row.pk}", f"Job {row.name}"[:300], {"job": row})


def model(viewer: Viewer, number: int) -> NamedSubject:
    """One of the viewer's models."""
    row = Model.objects.filter(viewer.owned()).filter(pk=number).first()
    if row is None:
        raise Unknown(f"You have no model {number}.", where="model")
    return NamedSubject(SubjectKind.MODEL, f"model:{row.pk}", f"Model {row.name}"[:300], {"model": row})


def service(viewer: Viewer) -> NamedSubject:
    """The service itself; for who runs it."""
    if not viewer.sees_all or viewer.focus is not None:
        raise RequestError("Only who runs the service can watch it.", where="subject")
    return NamedSubject(SubjectKind.SERVICE, "service", "The service itself")


def account(viewer: Viewer) -> NamedSubject:
    """The money of the organisation that is looked at; for who may see its bills."""
    if viewer.focus is None or BILL not in viewer.roles.get(viewer.focus, ()):
        raise RequestError("Only who may see an organisation's bills can watch its money.", where="subject")
    return NamedSubject(SubjectKind.ACCOUNT, "account", "What is spent")


def operators_that(given: Mapping[str, Any]) -> NamedSubject:
    """Operators that pass a filter of the operators' list; without one, every operator."""
    filters = {}
    for name in FILTERS:
        text = _text(given.get(name) or "", name).strip()
        if text:
            filters[name] = " ".join(text.split()) if name == "q" else text
    Words.checked(filters.get("q", ""))
    if "method" in filters and filters["method"] not in Method.values:
        raise RequestError(f"method is one of {', '.join(Method.values)}.", where="method")
    capability = ""
    if "target" in filters:
        target = target_named(filters["target"])
        filters["target"], capability = target.key, target.capability
    digest = hashlib.sha256(json.dumps(filters, sort_keys=True).encode()).hexdigest()[:32]
    return NamedSubject(
        SubjectKind.FILTER, f"filter:{digest}", _filter_title(filters, capability), {"filters": filters}
    )


def _filter_title(filters: Mapping[str, str], capability: str) -> str:
    said = {**filters, "target": capability} if capability else filters
    parts = [f"{_FILTER_NAMES[name]} {said[name]}" for name in FILTERS if said.get(name)]
    return shortened(f"Operators {', '.join(parts)}" if parts else "Every operator", 300)


def _text(value: Any, where: str) -> str:
    text = str(value)
    if len(text) > _FILTER_CHARACTERS or not text.isprintable():
        raise RequestError(f"{where} is one line of at most {_FILTER_CHARACTERS} characters.", where=where)
    return text
