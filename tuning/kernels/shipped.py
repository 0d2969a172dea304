"""The kernels that come with Opatlas: examples, submitted the way that anybody's are."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from django.contrib.auth.models import User

from catalog.models import Organisation, Target
from catalog.registry import default_organisation
from tuning.kernels.deciding import approve, may_decide
from tuning.kernels.dossier import NEEDED, Dossier
from tuning.kernels.models import KernelVersion, VersionState
from tuning.kernels.states import NotInThatState
from tuning.kernels.submitting import Submission, submit

FOLDER = Path(__file__).parent / "examples"
FOLDERS = {"cpu": FOLDER, "cuda": FOLDER / "cuda"}


def examples(kinds: Collection[str] = tuple(FOLDERS)) -> list[Submission]:
    """Every example for these kinds of targets, by name: ``<name>.json`` says what its source is."""
    paths = [path for kind in FOLDERS if kind in kinds for path in sorted(FOLDERS[kind].glob("*.json"))]
    return [_read(path) for path in paths]


def submit_examples(user: User, organisation: Organisation | None = None) -> list[KernelVersion]:
    """Submit every example that hardware was ever asked for, and give the versions; what is there already,
    unchanged, is left alone."""
    organisation = organisation or default_organisation()
    kinds = {"cpu", *Target.objects.values_list("kind", flat=True)}
    versions = []
    for submission in examples(kinds):
        try:
            versions.append(submit(submission, user=user, organisation=organisation))
        except NotInThatState:
            there = KernelVersion.objects.filter(
                kernel__organisation=organisation, kernel__name=submission.name
            )
            versions.append(there.select_related("kernel").latest("number"))
    return versions


def approve_all(user: User, reason: str) -> list[KernelVersion]:
    """Approve every version that awaits it and that this user may decide on."""
    awaiting = KernelVersion.objects.filter(state=VersionState.AWAITING).select_related("kernel")
    return [
        approve(version, user=user, reason=reason, looked_at=_by_digest(version))
        for version in awaiting.order_by("pk")
        if not may_decide(user, version)
    ]


def _by_digest(version: KernelVersion) -> dict[str, str]:
    """The source that ships, and the risk lines as they are: what who calls this answers for."""
    digests = Dossier(version).digests
    return {piece: digests[piece] for piece in NEEDED}


def _read(path: Path) -> Submission:
    document: dict[str, Any] = json.loads(path.read_text())
    source = path.with_name(document.pop("file")).read_text()
    return Submission(source=source, **document)
