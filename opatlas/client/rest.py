"""The REST calls a job makes: look operators up, fetch an implementation.

Standard library only, one connection kept open; nothing is remembered between calls.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from opatlas.errors import CallerError, OpatlasError
from opatlas.identity import Operator, Setting, Target, detect_target
from opatlas.load import Manifest


class ServiceError(OpatlasError):
    """The service could not be reached, or answered with an error of its own."""


@dataclass(frozen=True)
class Answer:
    """What the service knows of one operator: ``status`` is ``hit``, ``miss`` or ``need_graph``.

    Of a hit, ``stage`` is how far exploring has come (``first``: the contest waits or runs; ``contest``: it
    has ended; ``tuned``: a slice of tuning as well), ``final`` whether nothing more is planned just now, and
    ``expires_s`` how long it may be used without asking again: seconds while it is not final.

    ``best`` is the fastest acceptable implementation with its evidence (times in microseconds), ``state`` and
    ``reason`` say what became of a miss; ``payment_required`` is one too: the best is withheld until it is
    paid. ``price`` comes with a charged hit and with what is withheld: ``amount_micros``, ``currency``,
    ``pay_url``, … ``target`` and ``setting`` are the keys that it holds for.
    """

    key: str
    status: str
    best: Mapping[str, Any] | None = None
    state: str = ""
    reason: str = ""
    target: str = ""
    setting: str = ""
    price: Mapping[str, Any] | None = None
    stage: str = ""
    final: bool = False
    expires_s: float = 0.0

    @property
    def hit(self) -> bool:
        return self.status == "hit"

    @property
    def is_default(self) -> bool:
        """Whether what is served is the default itself: what a job has without the service."""
        return self.best is not None and bool(self.best.get("is_default"))


class Client:
    """A job's door to the service.

    ``url`` is the service's root (``http://127.0.0.1:8000``), ``key`` an API key with the scope ``lookup``,
    ``job`` the name under which this run's processes are counted as one. The target is this machine unless
    another is given.

    After each lookup ``entry_life_s`` says how long its final hits may be used without asking again (each
    answer's own ``expires_s`` is less while it is not final), and ``revoked`` names artifacts that must no
    longer be used (``all_revoked``: none may); whoever keeps entries drops those.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        job: str = "",
        target: Target | None = None,
        setting: Setting | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise CallerError(f"{url!r} is no service address; it looks like http://127.0.0.1:8000.")
        self.job = job
        self.target = target or detect_target()
        self.setting = setting
        self.entry_life_s = 0.0
        self.revoked: frozenset[str] = frozenset()
        self.all_revoked = False
        self._root = parts.path.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connect = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = connect(parts.hostname, parts.port, timeout=timeout_s)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def lookup(
        self,
        operators: Sequence[Operator | str],
        *,
        calls: Sequence[float] | None = None,
        accepts: Mapping[str, Any] | None = None,
        related: Sequence[Operator] = (),
        wait_s: float = 0.0,
        wait_for: str = "first",
    ) -> list[Answer]:
        """Ask for the best implementations of up to 1,024 operators (or their keys), in order.

        A miss is answered at once and explored in the background; ``wait_s`` (at most 30) waits until
        the stage ``wait_for`` is reached: ``first``, ``contest`` or ``tuned``, or exploring is over.
        ``calls`` says how often this job calls each. Raises :class:`CallerError` with the service's sentence
        when the request is wrong, :class:`ServiceError` when the service fails.
        """
        request: dict[str, Any] = {
            "target": self.target.to_json(),
            "operators": [
                _item(operator, None if calls is None else calls[i]) for i, operator in enumerate(operators)
            ],
        }
        if self.setting is not None:
            request["setting"] = self.setting.to_json()
        if self.job:
            request["job"] = self.job
        if accepts is not None:
            request["accepts"] = accepts
        if related:
            request["related"] = [_item(operator, None) for operator in related]
        if wait_s:
            request["wait_s"] = wait_s
        if wait_for != "first":
            request["wait_for"] = wait_for
        answer = self.call("POST", "/api/v1/lookup", request)
        self.entry_life_s = float(answer["entry_life_s"])
        self.revoked = frozenset(answer["revoked"])
        self.all_revoked = bool(answer.get("revoked_all", False))
        return [
            Answer(
                key=item["key"],
                status=item["status"],
                best=item.get("best"),
                state=item.get("state", ""),
                reason=item.get("reason", ""),
                target=answer["target"],
                setting=answer["setting"],
                price=item.get("price"),
                stage=item.get("stage", ""),
                final=item.get("final", False),
                expires_s=float(item.get("expires_s", 0.0)),
            )
            for item in answer["results"]
        ]

    def fetch(self, best: Mapping[str, Any], folder: Path) -> Manifest:
        """Download a hit's manifest and files into ``folder``; :func:`opatlas.load.load` takes it from there.

        The loader verifies every file's SHA-256 against the manifest; this only transports.
        :func:`opatlas.client.fetch_and_load` checks everything, the signature too.
        """
        document = self.manifest(best["artifact"])
        manifest = Manifest.from_json(document["manifest"])
        if manifest.sha256 != best["artifact"]:
            raise ServiceError(
                f"The service sent manifest {manifest.sha256} where {best['artifact']} was asked for."
            )
        self.download(best["artifact"], manifest, folder)
        return manifest

    def manifest(self, sha256: str) -> Mapping[str, Any]:
        """An artifact's manifest with its signature and signer, as the service sends it."""
        document: Mapping[str, Any] = self.call("GET", f"/api/v1/artifacts/{sha256}")
        return document

    def download(self, sha256: str, manifest: Manifest, folder: Path) -> None:
        """Put the files that an artifact's manifest names into ``folder``, unverified."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in manifest.files:
            if Path(name).name != name:
                raise ServiceError(f"The manifest names a file outside of its folder: {name!r}.")
            status, body = self._send("GET", f"/api/v1/artifacts/{sha256}/files/{name}", None)
            if status != 200:
                raise ServiceError(f"The service answered {status} for file {name} of {sha256}.")
            (folder / name).write_bytes(body)

    def signers(self) -> list[Mapping[str, Any]]:
        """Public keys that sign manifests, as the service lists them: ``sha256``, ``public_key``,
        ``retired_at``."""
        found: list[Mapping[str, Any]] = []
        while True:
            page = self.call("GET", f"/api/v1/signers/?limit=200&offset={len(found)}")
            found += page["results"]
            if not page["next"]:
                return found

    def call(self, verb: str, path: str, document: Any = None) -> Any:
        """One JSON request to any path of the service; returns the JSON answer."""
        body = None if document is None else json.dumps(document).encode()
        status, data = self._send(verb, path, body)
        try:
            answer = json.loads(data) if data else None
        except ValueError as error:
            raise ServiceError(f"The service answered {status} with something that is not JSON.") from error
        if status >= 500:
            raise ServiceError(f"The service answered {status} to {verb} {path}.")
        if status >= 400:
            sentence = answer.get("error") if isinstance(answer, dict) else None
            raise CallerError(sentence or f"The service answered {status} to {verb} {path}.")
        return answer

    def _send(self, verb: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        # A kept-open connection may have been closed by the other side meanwhile: one fresh try is owed.
        for fresh in (False, True):
            try:
                self._connection.request(verb, self._root + path, body, self._headers)
                response = self._connection.getresponse()
                return response.status, response.read()
            except (http.client.HTTPException, OSError) as error:
                self._connection.close()
                if fresh:
                    raise ServiceError(f"The service cannot be reached: {error}.") from error
        raise AssertionError("unreachable")


def _item(operator: Operator | str, calls: float | None) -> dict[str, Any]:
    item: dict[str, Any] = {"key": operator} if isinstance(operator, str) else {"graph": operator.to_json()}
    if calls is not None:
        item["calls"] = calls
    return item
