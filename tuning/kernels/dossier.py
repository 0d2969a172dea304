"""All that a decision rests on: each piece of evidence with the digest that an approval names."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import Q

from catalog.errors import RequestError
from opatlas.identity.operator import canonical_json
from tuning.kernels.caught import catches_of
from tuning.kernels.models import CaughtSource, KernelInspection, KernelTry, KernelVersion
from tuning.kernels.states import NotInThatState
from tuning.kernels.verdicts import APPROVABLE, is_against
from tuning.measure.observing.risks import Risk, ordered, risks_of_source
from tuning.measure.observing.source import findings

PIECES = ("source", "risks", "tries", "observation", "machine_code")
NEEDED = ("source", "risks")
"""No approval without having looked at these."""


@dataclass(frozen=True)
class Dossier:
    """A version's evidence, read once."""

    version: KernelVersion

    @cached_property
    def tries(self) -> list[KernelTry]:
        """Every try, the first first: none is hidden by a later one."""
        return list(self.version.tries.select_related("evaluation__operator").order_by("pk"))

    @cached_property
    def inspections(self) -> list[KernelInspection]:
        """What a worker saw beside results and times: the latest of each operator."""
        rows = self.version.inspections.select_related("evaluation__operator").order_by("pk")
        return list({row.evaluation_id: row for row in rows}.values())

    @cached_property
    def catches(self) -> list[CaughtSource]:
        """Sources of this kernel, of its submitter, or like this one that were caught cheating."""
        version = self.version
        theirs = Q(
            version__submitted_by=version.submitted_by_id,
            version__kernel__organisation=version.kernel.organisation_id,
        )
        about = Q(version__kernel=version.kernel_id) | theirs
        same = catches_of(self.version.source_sha256, self.version.tokens_sha256).values("pk")
        return list(CaughtSource.objects.filter(about | Q(pk__in=same)).order_by("pk"))

    @cached_property
    def risks(self) -> list[Risk]:
        """Every risk line, the gravest first."""
        seen = [Risk(**line) for row in self.inspections for line in row.risks]
        if not self.inspections:
            seen = [Risk("serious", "it was neither observed nor disassembled")]
        return ordered([*self._history(), *seen, *risks_of_source(findings(self.version.source))])

    @cached_property
    def digests(self) -> dict[str, str]:
        """Piece → SHA-256 of what is shown of it."""
        return {
            "source": self.version.source_sha256,
            "risks": _digest([risk.to_json() for risk in self.risks]),
            "tries": _digest([[one.pk, one.status, one.detail, one.ratio_to_default] for one in self.tries]),
            "observation": _digest([[row.pk, row.observed] for row in self.inspections]),
            "machine_code": _digest([[row.pk, row.assembly, row.code] for row in self.inspections]),
        }

    def check(self, looked_at: Mapping[str, Any]) -> dict[str, str]:
        """What an approval names, held against what there is. Raises RequestError where it names too little
        or what there is not, NotInThatState where the evidence changed since it was shown."""
        if not isinstance(looked_at, Mapping) or set(looked_at) - set(PIECES):
            raise RequestError(
                f"looked_at is an object of pieces ({', '.join(PIECES)}) and their digests.", "looked_at"
            )
        if missing := [piece for piece in NEEDED if not looked_at.get(piece)]:
            raise RequestError(
                "An approval names what was looked at: at least the source and the risk lines, with their "
                f"digests; {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing.",
                "looked_at",
            )
        changed = [piece for piece, digest in looked_at.items() if digest != self.digests[piece]]
        if changed:
            raise NotInThatState(
                f"The evidence changed since it was shown ({', '.join(sorted(changed))}): look at it again."
            )
        return {piece: self.digests[piece] for piece in PIECES if piece in looked_at}

    def _history(self) -> Iterator[Risk]:
        for one in self.catches:
            how = self._relation(one)
            yield Risk("grave", f"{how} was caught cheating on {one.caught_at:%Y-%m-%d}: {one.detail[:200]}")
        for tried in self.tries:
            if tried.status not in APPROVABLE:
                text = f"try {tried.number} on {tried.operator} ended {tried.status}"
                yield Risk("serious" if is_against(tried.status) else "note", text)

    def _relation(self, one: CaughtSource) -> str:
        if self.version.source_sha256 == one.source_sha256:
            return "this very source"
        if self.version.tokens_sha256 and self.version.tokens_sha256 == one.tokens_sha256:
            return "this source, under other names,"
        if one.version is not None and one.version.kernel_id == self.version.kernel_id:
            return f"version {one.version.number} of this kernel"
        return "another kernel of its submitter"


def _digest(document: Any) -> str:
    return hashlib.sha256(canonical_json(document)).hexdigest()
