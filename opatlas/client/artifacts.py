"""Artifacts at hand: from a snapshot, the machine's cache or the service, checked before they are loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.fetching import Trust, address_of, checked_manifest, load_checked
from opatlas.client.function import KernelFunction
from opatlas.client.rest import RestClient
from opatlas.client.snapshot import Snapshot
from opatlas.client.store import EntryStore
from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.manifest import Manifest


@dataclass(frozen=True)
class FetchedArtifact:
    """An artifact whose manifest was checked, and whose files lie in ``folder``, not compared yet."""

    document: Mapping[str, Any]
    signer: Mapping[str, Any]
    manifest: Manifest
    folder: Path


@dataclass(frozen=True)
class ArtifactShelf:
    """Where a client has its artifacts from. ``trust``: whose signatures count; None: the service's list."""

    rest: RestClient
    store: EntryStore | None
    home: Path
    trust: Trust | None = None
    snapshot: Snapshot | None = None
    offline: bool = False

    def load(
        self, answer: Answer, revoked: Collection[str], places: Sequence[int] | None = None
    ) -> KernelFunction:
        """Fetch what is not here yet, verify it, and load it. Raises :class:`~.fetching.Refused`, or
        :class:`opatlas.errors.LoadError` where the kind's own loader fails."""
        found = self.fetch(answer, revoked)
        try:
            kernel = load_checked(found.manifest, found.folder)
        except LoadError:
            if self.offline or not found.manifest.files:
                raise
            for name in found.manifest.files:  # damaged on the disk, or on the way: once more from its source
                (found.folder / name).unlink(missing_ok=True)
            found = self.fetch(answer, revoked)
            kernel = load_checked(found.manifest, found.folder)
        operator = Operator.from_json(found.manifest.operator)
        return KernelFunction(kernel, operator, found.manifest, places)

    def fetch(self, answer: Answer, revoked: Collection[str]) -> FetchedArtifact:
        """A hit's manifest, checked, and its files, not loaded."""
        sha256 = address_of(answer, revoked)
        snapshot = self.snapshot if answer.source == "snapshot" else None
        document = snapshot.manifests[sha256] if snapshot is not None else self._document(sha256)
        signer = str(document.get("signer", ""))
        row = snapshot.signers[signer] if snapshot is not None else self._signer(signer)
        trust = self.trust or Trust.in_rows({signer: row} if row else {})
        manifest = checked_manifest(document, answer, self.rest.target, lambda: trust)
        folder = self.home / "artifacts" / sha256[:2] / sha256
        if not all((folder / name).exists() for name in manifest.files):
            if snapshot is not None:
                snapshot.extract(sha256, folder)
            else:
                self.rest.download(sha256, manifest, folder)
        return FetchedArtifact(document, row or {}, manifest, folder)

    def _document(self, sha256: str) -> Mapping[str, Any]:
        known = self.store.manifest(sha256) if self.store is not None else None
        return known or self.rest.manifest(sha256)

    def _signer(self, signer: str) -> Mapping[str, Any] | None:
        """A signer's key as the service said last; asked for where it never did."""
        known = self.store.signer(signer) if self.store is not None and signer else None
        if known is None and not self.offline:
            known = next((row for row in self.rest.signers() if row["sha256"] == signer), None)
        return known and {name: known[name] for name in ("public_key", "retired_at")}
