"""Records new versions of the service and of its workers' libraries; the courier's chore. Declaring an
environment is separate (``tuning.environments``): a library may change long before that, or without it."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from dashboard.operation.models import Release
from tuning.conf import conf
from tuning.models import Worker
from tuning.queue.clock import now_in

SERVICE = "Opatlas"
_CODE = ("catalog", "dashboard", "opatlas", "templates", "tuning")
_KINDS = frozenset({".py", ".html", ".js", ".css"})
_MOST_SAID = 300


@dataclass(frozen=True)
class Running:
    """The versions in one place since a moment, by name."""

    host: str
    target_id: int | None
    since: datetime
    versions: Mapping[str, str]


def note_releases() -> int:
    """Record what has changed since the last look; returns in how many places. Two statements if nothing has.
    A new or missing library is no mark: routes come and go with what a worker can load."""
    noted = {(row.host, row.target_id): row for row in Release.objects.order_by("pk")}
    changed = 0
    for place in _running():
        last = noted.get((place.host, place.target_id))
        known = last.versions if last else {}
        said = changes(known, place.versions)
        versions = {**known, **place.versions}
        if last is None or said:
            Release.objects.create(
                at=place.since, host=place.host, target_id=place.target_id, versions=versions,
                said=said[:_MOST_SAID],
            )  # fmt: skip
            changed += bool(said)
        elif versions != known:
            Release.objects.filter(pk=last.pk).update(versions=versions)
    return changed


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """``torch 2.12.0 became 2.13.0, numpy 2.3 became 2.4``; empty where what both name is the same. PURE."""
    return ", ".join(
        f"{name} {before[name]} became {version}"
        for name, version in sorted(after.items())
        if name in before and before[name] != version
    )


@lru_cache(maxsize=1)
def version_of_service() -> str:
    """``0.2.0 (3fa9c1d2)``: as the tree says, and a digest of its code, since a tree between two releases
    says the same as before."""
    root = Path(settings.BASE_DIR)
    with (root / "pyproject.toml").open("rb") as file:
        version = tomllib.load(file)["project"]["version"]
    read = hashlib.sha256()
    for path in sorted(path for name in _CODE for path in (root / name).rglob("*") if path.suffix in _KINDS):
        read.update(f"{path.relative_to(root)}\0".encode())
        read.update(path.read_bytes())
    return f"{version} ({read.hexdigest()[:8]})"


@lru_cache(maxsize=1)
def _begun() -> datetime:
    """When this process first asked: it began just before."""
    return timezone.now()


def _versions(routes: Any) -> dict[str, str]:
    """What a worker's row says of its libraries; nothing where that cannot be read here."""
    try:
        named = [facts.get("versions", {}).items() for facts in routes.values()]
        return {name: str(version) for versions in named for name, version in versions}
    except (AttributeError, TypeError, ValueError):
        return {}


def _running() -> Iterator[Running]:
    yield Running("", None, _begun(), {SERVICE: version_of_service()})
    # Of several workers of a place the youngest says what runs there.
    alive = Worker.objects.filter(stopped_at=None, last_seen_at__gte=now_in(-conf().served_s))
    columns = ("host", "target", "started_at", "routes")
    youngest = {(host, target): (at, routes) for host, target, at, routes in
                alive.order_by("started_at", "pk").values_list(*columns)}  # fmt: skip
    for (host, target), (at, routes) in sorted(youngest.items()):
        if versions := _versions(routes):
            yield Running(host, target, at, versions)
