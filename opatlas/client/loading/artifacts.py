"""Provides artifacts from a snapshot, the machine's cache or the service, checked before they are loaded."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.cache.store import EntryStore
from opatlas.client.loading.failing import LOAD, FailureWatch
from opatlas.client.loading.fetching import (
    Refused,
    Trust,
    address_of,
    checked_manifest,
    load_checked,
    threads_here,
)
from opatlas.client.loading.function import KernelFunction
from opatlas.client.service.rest import RestClient, ServiceError
from opatlas.client.snapshot import Snapshot
from opatlas.errors import LoadError
from opatlas.identity.operator import Operator
from opatlas.load.manifest import Manifest
from opatlas.own_folder import own_folder


@dataclass(frozen=True)
class FetchedArtifact:
    """An artifact with a checked manifest; its files are in ``folder``, not compared yet."""

    document: Mapping[str, Any]
    signer: Mapping[str, Any]
    manifest: Manifest
    folder: Path


@dataclass(frozen=True)
class ArtifactShelf:
    """Where a client gets its artifacts. ``trust``: whose signatures are valid; None: the service's list.
    ``offline``: nobody is asked. ``report`` gets failures on this machine."""

    rest: RestClient
    store: EntryStore | None
    home: Path
    trust: Trust | None = None
    snapshot: Snapshot | None = None
    offline: bool = False
    report: Callable[[Mapping[str, Any]], None] = lambda failed: None

    def load(
        self, answer: Answer, revoked: Collection[str], places: Sequence[int] | None = None
    ) -> KernelFunction:
        """Fetch it if needed, verify and load it; if it has failed on this machine, load the operator's
        default. Raises :class:`~.fetching.Refused`, :class:`opatlas.errors.LoadError` if the kind's own
        loader fails, or the service's error."""
        try:
            found, loaded = self._loaded(answer, revoked)
        except Refused as refused:
            pinned = answer.source == "snapshot" and refused.why == "file"
            if (self.offline and not pinned) or not self._forgotten(answer, refused.why):
                raise
            try:
                found, loaded = self._loaded(answer, revoked)  # once more, from the service
            except ServiceError:
                raise refused from None
        except OSError as error:
            raise LoadError(f"the artifact's files cannot be kept: {error}") from error
        operator = Operator.from_json(found.manifest.operator)
        manifest, threads = found.manifest, threads_here(self.rest.target, answer)
        if threads is not None:  # the default takes what was asked for
            manifest = replace(manifest, setting={**manifest.setting, "threads": threads})
        return KernelFunction(operator, manifest, places, **loaded)

    def fetch(self, answer: Answer, revoked: Collection[str]) -> FetchedArtifact:
        """A hit's checked manifest and its files, not loaded."""
        sha256 = address_of(answer, revoked)
        try:
            own_folder(self.home)
        except OSError as error:
            raise LoadError(f"the artifact's files cannot be kept: {error}") from error
        snapshot = self.snapshot if answer.source == "snapshot" else None
        document = snapshot.manifests[sha256] if snapshot is not None else self._document(sha256)
        signer = str(document.get("signer", ""))
        row = snapshot.signers.get(signer) if snapshot is not None else self._signer(signer)
        trust = self._trust_in(signer, row)
        manifest = checked_manifest(document, answer, self.rest.target, lambda: trust)
        folder = self.folder(sha256)
        if not all((folder / name).exists() for name in manifest.files):
            if snapshot is not None:
                snapshot.extract(sha256, folder)
            elif self.offline:
                raise LoadError("its files are not on this machine, and the client asks nobody")
            else:
                self.rest.download(sha256, manifest, folder)
        return FetchedArtifact(document, row or {}, manifest, folder)

    def trusted(self, signer: str) -> Trust:
        """The keys whose signatures are valid, with this signer's if it is trusted."""
        return self._trust_in(signer, None if self.trust else self._signer(signer))

    def _trust_in(self, signer: str, row: Mapping[str, Any] | None) -> Trust:
        return self.trust or Trust.in_rows({signer: row} if row else {})

    def _loaded(self, answer: Answer, revoked: Collection[str]) -> tuple[FetchedArtifact, dict[str, Any]]:
        """The artifact's kernel and its failure watch, or why it must not run."""
        found = self.fetch(answer, revoked)
        assert answer.best is not None
        compiled = found.manifest.kind != "recipe"
        watch = FailureWatch(answer.best, found.folder, self.report, compiled)
        if why := watch.why_not():
            return found, {"kernel": None, "failure": why}
        try:
            with watch.trying():
                threads = threads_here(self.rest.target, answer)
                kernel = load_checked(found.manifest, found.folder, threads)
        except LoadError as error:
            if not isinstance(error, Refused):
                watch.failed(LOAD, type(error).__name__, str(error))
            raise
        # The default is what a job has without us: it has no other to fall back to.
        return found, {"kernel": kernel, "watch": None if answer.is_default else watch}

    def _forgotten(self, answer: Answer, why: str) -> bool:
        """Drop stored data that is not as it should be; returns whether there was any."""
        sha256 = str((answer.best or {}).get("artifact", ""))
        if why == "file":
            shutil.rmtree(self.folder(sha256), ignore_errors=True)
            return True
        if why in ("manifest", "signature", "address") and self.store and self.store.manifest(sha256):
            self.store.forget_manifest(sha256)
            return True
        return False

    def folder(self, sha256: str) -> Path:
        """The folder of an artifact's files on this machine."""
        return self.home / "artifacts" / sha256[:2] / sha256

    def _document(self, sha256: str) -> Mapping[str, Any]:
        known = self.store.manifest(sha256) if self.store is not None else None
        if known is None and self.offline:
            raise LoadError("its manifest is not on this machine, and the client asks nobody")
        return known or self.rest.manifest(sha256)

    def _signer(self, signer: str) -> Mapping[str, Any] | None:
        """A signer's key from the service's last answer; asked for if there was none."""
        known = self.store.signer(signer) if self.store is not None and signer else None
        if known is None and not self.offline:
            known = next((row for row in self.rest.signers() if row["sha256"] == signer), None)
        return known and {name: known.get(name) for name in ("public_key", "retired_at")}
