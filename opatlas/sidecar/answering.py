"""What a sidecar answers: lookups from its clients, files from the machine's cache, all else by the
service."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.asking import Asked
from opatlas.client.base import NEIGHBOURS
from opatlas.client.cache.store import digest_of
from opatlas.client.service.rest import MOST_REVOKED
from opatlas.client.service.wire import ServiceError, ServiceWire
from opatlas.client.steps import UNASKED
from opatlas.errors import LoadError
from opatlas.identity.place.cpu import detect_target
from opatlas.load.manifest import Manifest
from opatlas.own_folder import own_folder
from opatlas.sidecar.lookup_body import LookupBody
from opatlas.sidecar.shared_client import SharedClient

MOST_CLIENTS = 32
"""Of jobs that are answered from memory at once; then the one that asked longest ago is closed."""
TELL_ALL_REVOKED_S = 360.0
"""How long every job is told that everything was revoked: an entry's life and a minute, as a service does."""


class Answerer:
    """One login's answers to all jobs of this machine. Safe in threads."""

    def __init__(self, wire: ServiceWire, key: str) -> None:
        self.wire = wire
        self._key = key
        self._lock = threading.Lock()
        self._clients: OrderedDict[bytes, SharedClient] = OrderedDict()
        self._file_locks = tuple(threading.Lock() for _ in range(16))
        self._left: list[SharedClient] = []
        # Nobody's job: it reports what processes left behind, and knows where files lie.
        self._own = SharedClient(wire, key, "", (detect_target(), None), {})

    # ---- lookups ------------------------------------------------------------------------------------

    def lookup(self, body: LookupBody) -> dict[str, Any]:
        """The JSON of an answer; raises :class:`~opatlas.client.service.wire.ServiceError` where none of it
        is known and the service cannot be asked, :class:`~opatlas.client.service.rest.CostsSomething` where
        the job has to ask for it under its own name."""
        client = self._client(body)
        told = client.ask(body.asked, body.related, body.wait_s, body.wait_for)
        asked_for = body.asked or body.related
        if all(one.key in told and told[one.key].source == "nobody" for one in asked_for):
            raise ServiceError(told[asked_for[0].key].reason)
        others = body.related if "related" in body.include else ()
        until, revoked = client.told()
        answer: dict[str, Any] = {
            "target": client.target.key,
            "setting": client.setting_key,
            "entry_life_s": client.entry_life_s,
            "revoked": sorted(revoked)[:MOST_REVOKED],
            "revoked_until": until,
            "results": [_item(client, told[one.key]) for one in body.asked],
        }
        if "related" in body.include:
            answer["related"] = [_related_item(client, one.key, told.get(one.key)) for one in others]
        hits = [told[one.key] for one in (*body.asked, *others) if told.get(one.key)]
        if body.known:
            answer["unchanged"] = sorted(body.known & {hit.best["artifact"] for hit in hits if hit.best})
        if "manifest" in body.include:
            answer["manifests"], answer["signers"] = _manifests(client, hits, body.known)
        too_many = len(revoked) > MOST_REVOKED
        if too_many or time.time() < client.all_revoked_at + TELL_ALL_REVOKED_S:
            answer["revoked_all"] = True
        return answer

    def read_graph(self, document: Mapping[str, Any]) -> Asked:
        """The operator that is described; raises :class:`opatlas.errors.InvalidOperator`."""
        return self._own.asked(document)

    def _client(self, body: LookupBody) -> SharedClient:
        target, setting = body.place
        about = setting.to_json() if setting is not None else None
        wishes = sorted(body.include & {*NEIGHBOURS, "next"})
        name = digest_of([body.job, target.to_json(), about, body.accepts, wishes])
        with self._lock:
            client = self._clients.get(name)
            if client is None:
                client = SharedClient(self.wire, self._key, body.job, body.place, body.accepts, wishes)
                self._clients[name] = client
            self._clients.move_to_end(name)
            while len(self._clients) > MOST_CLIENTS:
                self._left.append(self._clients.popitem(last=False)[1])
            return client

    # ---- files --------------------------------------------------------------------------------------

    def file(self, sha256: str, name: str) -> Path | None:
        """A file of an artifact in the machine's cache, as its manifest has it: fetched once. None where the
        artifact has no such file, or was revoked. Raises what the service says."""
        manifest = self._manifest(sha256)
        if name not in manifest.files or sha256 in self._own.revoked:
            return None
        path = self._own.home / "artifacts" / sha256[:2] / sha256 / name
        with self._file_locks[int(sha256[0], 16)]:
            if not _is(path, manifest.files[name]):
                self._fetch_files(manifest, path.parent)
            if not _is(path, manifest.files[name]):
                raise ServiceError(f"The service's file {name} of {sha256} is not what its manifest says.")
        return path

    def _manifest(self, sha256: str) -> Manifest:
        known = self._own.store.manifest(sha256) if self._own.store is not None else None
        for document in (known, None) if known else (None,):
            try:
                found = document or self._own.rest.manifest(sha256)
                manifest = Manifest.from_json(found["manifest"])
                if manifest.sha256 == sha256:
                    return manifest
            except (KeyError, TypeError, ValueError, AttributeError, LoadError):
                continue  # what is kept may be damaged: then the service is asked
        raise ServiceError(f"The service's manifest of {sha256} is none.")

    def _fetch_files(self, manifest: Manifest, folder: Path) -> None:
        """Beside the folder first: a job that asks for a file here holds the lock on its own copy of it."""
        beside = self._own.home / "sidecar" / manifest.sha256
        try:
            own_folder(self._own.home)
            self._own.rest.download(manifest.sha256, manifest, beside)
            folder.mkdir(parents=True, exist_ok=True)
            for one in manifest.files:
                (beside / one).replace(folder / one)
            beside.rmdir()
        except OSError as error:
            raise ServiceError(f"The files of {manifest.sha256} cannot be kept: {error}.") from error

    # ---- beside the answers -------------------------------------------------------------------------

    def look_around(self) -> None:
        """What other processes were told; and uses, written down every few seconds and reported. To be called
        every second."""
        with self._lock:
            clients, left, self._left = [self._own, *self._clients.values()], self._left, []
        for client in clients:
            client.look_around()
        for client in left:
            client.close()

    def close(self) -> None:
        """Write down and report what was used."""
        with self._lock:
            clients = [self._own, *self._clients.values(), *self._left]
        for client in clients:
            client.close()
        self.wire.close()


def _item(client: SharedClient, answer: Answer) -> dict[str, Any]:
    if answer.source == "nobody":
        return {"key": answer.key, "status": "miss", "state": UNASKED, "reason": answer.reason}
    return answer.to_json() | {"expires_s": client.left_s(answer)}


def _related_item(client: SharedClient, key: str, answer: Answer | None) -> dict[str, Any]:
    if answer is None or answer.source == "nobody" or answer.price:
        return {"key": key, "status": "need_lookup"}
    return _item(client, answer)


def _manifests(
    client: SharedClient, hits: list[Answer], known: frozenset[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Of hits, as far as they were kept: a job asks for any other by itself."""
    if client.store is None:
        return {}, {}
    artifacts = {str(hit.best["artifact"]) for hit in hits if hit.best is not None}
    manifests = {one: found for one in artifacts if (found := client.store.manifest(one)) is not None}
    names = {str(document.get("signer", "")) for document in manifests.values()}
    signers = {name: found for name in names if (found := client.store.signer(name)) is not None}
    return {one: found for one, found in manifests.items() if one not in known}, signers


def _is(path: Path, digest: str) -> bool:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest() == digest
    except OSError:
        return False
