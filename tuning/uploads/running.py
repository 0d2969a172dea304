"""An upload that a worker has claimed becomes a model, or a plan; or it is refused."""

from __future__ import annotations

import base64
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from django.db.models import F
from rest_framework.exceptions import ValidationError

from catalog.api.errors import first_complaint
from opatlas import identity
from opatlas.errors import CallerError, printable
from opatlas.graph import Extracted, Extraction
from opatlas.graph.structure import ModelStructure
from opatlas.identity import default_setting, parse_operator
from tuning import ingest
from tuning.explore import scratch
from tuning.explore.workshop import Workshop
from tuning.graph.apart import TakenApart
from tuning.queue.held import UNHELD, StaleLease, work_on
from tuning.telling import told
from tuning.uploads import plan_request, sandboxed, storage
from tuning.uploads.claims import RELEASED, UploadClaim
from tuning.uploads.models import Upload, UploadKind, UploadState
from tuning.uploads.sandboxed import UploadRefused

logger = logging.getLogger(__name__)

MAX_TRIES = 3


def run_upload(workshop: Workshop, held: UploadClaim) -> bool:
    """Do one that was claimed; False where it was lost. Raises Stopping, DiskFull and DATABASE_GONE."""
    began = time.monotonic()

    def spent() -> dict[str, Any]:
        return {"spent_s": F("spent_s") + (time.monotonic() - began)}

    def give_back() -> None:
        held.row().update(**RELEASED, **spent())

    def fail(error: Exception) -> None:
        again = held.row().filter(tries__lt=MAX_TRIES)
        if not again.update(**UNHELD, state=UploadState.WAITING, **spent()):
            held.end(UploadState.DEAD, told(error, held)[:1000], **spent())

    return work_on(held, partial(_run, workshop, held, spent), give_back, fail)


def _run(workshop: Workshop, held: UploadClaim, spent: Callable[[], dict[str, Any]]) -> None:
    row = held.load()
    if row.tries > MAX_TRIES:
        return held.end(UploadState.DEAD, f"Its workers fell silent {row.tries - 1} times.")
    try:
        with scratch.folder_of_work(workshop.home) as folder:
            taken = _taken_apart(workshop, held, row, folder)
        return _KINDS[UploadKind(row.kind)](held, row, taken, spent)
    except CallerError as error:
        return held.end(UploadState.REFUSED, printable(str(error), 1000), **spent())


def _taken_apart(workshop: Workshop, held: UploadClaim, row: Upload, folder: Path) -> dict[str, Any]:
    """The sandboxed child's answer."""
    body = storage.path_of(row.pk)
    if not body.is_file():
        raise UploadRefused("Its bytes are not in the store any more: send it again.")
    held.update(doing="taking it apart")
    wish = {"kind": row.kind, "dims": row.dims, "as_float32": row.as_float32}
    return sandboxed.take_apart(
        body, wish, workshop.laboratory.tier.name, folder, partial(_go_on, workshop, held)
    )


def _go_on(workshop: Workshop, held: UploadClaim) -> None:
    workshop.check(held)
    if not held.row().exists():
        raise StaleLease(f"Upload {held.pk} was cancelled, or another worker took it over.")


@dataclass
class KeptAsked(ingest.AskedSoFar):
    """Kept in the upload's row, under its claim: a batch that is asked for twice is undone."""

    held: UploadClaim = field(kw_only=True)

    def keep(self) -> None:
        self.held.update(
            operators_done=self.operators,
            hit_calls=self.hit_calls,
            doing=f"asking for its operators: {self.operators}",
        )


def _keep_model(
    held: UploadClaim, row: Upload, found: Mapping[str, Any], spent: Callable[[], dict[str, Any]]
) -> None:
    taken = ingest.shown(_read(found))
    wish = _wish(row)
    held.update(operators_total=len(taken.extraction.operators))
    asked = ingest.ask(taken, wish, KeptAsked(row.operators_done, row.hit_calls, held=held))
    with held.ending(UploadState.DONE) as columns:
        columns["model"], columns["is_new"] = ingest.keep_model(taken, asked, wish)
        columns |= spent()


def _read(found: Mapping[str, Any]) -> TakenApart:
    """What the child says, read as a caller's: its operators are made anew. Raises CallerError."""
    try:
        operators = [
            Extracted(parse_operator(one["graph"]), int(one["calls"]), str(one["example"]))
            for one in found["operators"]
        ]
        unmapped = {str(reason): int(calls) for reason, calls in found["unmapped"].items()}
        packed = found["structure"]
        structure = ModelStructure.unpacked(base64.b64decode(packed)) if packed else None
        return TakenApart(str(found["form"])[:20], Extraction(operators, unmapped), structure)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        logger.warning("What came of an upload cannot be read.", exc_info=error)
        raise UploadRefused("Its operators cannot be read as its reader handed them over.") from error


def _wish(row: Upload) -> ingest.ModelWish:
    """Where it is looked up: a target that is served now, unless one was named."""
    setting: Any = row.setting
    if row.target is None:
        target, setting = ingest.default_place()
    else:
        target = row.target
        setting = setting or default_setting(identity.Target.from_json(row.target.description))
    return ingest.ModelWish(row.name, row.sha256, row.organisation, target, setting, row.api_key)


def _keep_plan(
    held: UploadClaim, row: Upload, found: Mapping[str, Any], spent: Callable[[], dict[str, Any]]
) -> None:
    packed = found["structure"]
    structure = ModelStructure.unpacked(base64.b64decode(packed)) if packed else None
    asked = plan_request.PlanRequestSerializer(data=found["asked"])
    try:
        asked.is_valid(raise_exception=True)
    except ValidationError as error:
        where, sentence = first_complaint(error.detail)
        raise UploadRefused(printable(f"{where}: {sentence}" if where else sentence)) from error
    wish = plan_request.checked(asked.validated_data, structure is not None, row.organisation)
    held.update(doing="making the plan")
    with held.ending(UploadState.DONE) as columns:
        columns["plan"], columns["is_new"] = plan_request.make(wish, structure, row.organisation, row.api_key)
        columns |= spent()


_KINDS = {UploadKind.MODEL: _keep_model, UploadKind.PLAN: _keep_plan}
