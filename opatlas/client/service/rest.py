"""The REST calls of a job: look operators up, fetch an implementation.

Nothing is remembered between calls. A lookup without an answer keeps its Idempotency-Key, so that repeating
it is not paid twice. Safe in threads and forked processes (:mod:`opatlas.client.service.wire`).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opatlas.client.answer import SHA256, Answer, LookupReply
from opatlas.client.service.capabilities import LOOKUP, ServiceCapabilities
from opatlas.client.service.wire import SLOWEST_BYTES_S, ServiceError, ServiceWire, all_of, pieces
from opatlas.errors import CallerError, OpatlasError
from opatlas.identity.operator import Operator
from opatlas.identity.place.cpu import detect_target
from opatlas.identity.place.setting import Setting
from opatlas.identity.place.target import Target
from opatlas.quick_json import json_bytes, read_quickly

if TYPE_CHECKING:
    from opatlas.load.manifest import Manifest

MOST_REVOKED = 10_000
"""Of one answer: a service sends 1,000, and the rest with the next."""
MOST_VALUES = 2_000_000
"""Of one answer's JSON: each takes about 100 bytes when parsed; all take a second."""
MOST_NEXT = 512
"""Operators that a service may send unasked."""
MOST_UNANSWERED = 64
_BESIDE = ("related", "include", "known", "revoked_since")
_PLACE = re.compile(r"operators\[(\d{1,4})\]")
_CURSOR = re.compile(r"[0-9A-Za-z.-]{1,64}")


class RefusedRequest(CallerError):
    """The service refused a request (4xx): its sentence, ``where`` in the request, the HTTP ``status``."""

    def __init__(self, message: str, where: str, status: int) -> None:
        super().__init__(message)
        self.where, self.status = where, status


class CostsSomething(OpatlasError):
    """A lookup for free answers alone was not answered: the operator ``key`` costs something. No key: the
    service is too old for such lookups."""

    def __init__(self, key: str) -> None:
        super().__init__(f"The operator {key} costs something." if key else "The service may charge for it.")
        self.key = key


class RestClient:
    """The service's REST interface, call by call; :class:`opatlas.client.Client` keeps the answers.

    ``url``: the service's root (``http://127.0.0.1:8000``); ``key``: an API key with the scope ``lookup``;
    ``job``: the name under which this run's processes count as one. The target is this machine unless another
    is given. ``free_only``: pay for nothing (:class:`CostsSomething`). ``wire``: a shared connection instead
    of ``url`` and ``key``. After each lookup ``entry_life_s`` says how long final hits may be used without
    asking again (each answer's ``expires_s`` is shorter while it is not final), and ``revoked`` names
    artifacts that must not be used any more (``all_revoked``: none may): drop their entries.
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
        spend_limit: Mapping[str, Any] | None = None,
        free_only: bool = False,
        capabilities: ServiceCapabilities | None = None,
        wire: ServiceWire | None = None,
    ) -> None:
        self.wire, self._shared = wire or ServiceWire(url, key), wire is not None
        self.job = job
        self.target = target or detect_target()
        self.setting = setting
        self.timeout_s = timeout_s
        self.spend_limit = spend_limit
        self.free_only = free_only
        self.capabilities = capabilities or ServiceCapabilities()
        self.entry_life_s = 0.0
        self.revoked: frozenset[str] = frozenset()
        self.all_revoked = False
        # Lookups that got no answer, by what they ask for: their names, and all that they said.
        self._unanswered: dict[bytes, tuple[str, dict[str, Any]]] = {}

    def __enter__(self) -> RestClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its own connections."""
        if not self._shared:
            self.wire.close()

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

        A miss is answered at once and explored in the background. ``wait_s`` (at most 30) waits until the
        stage ``wait_for`` (``first``, ``contest`` or ``tuned``) is reached, or exploring has ended.
        ``calls``: how often this job calls each. Raises :class:`CallerError` with the service's sentence if
        the request is wrong, :class:`ServiceError` if the service fails.
        """
        items = [
            _item(operator, None if calls is None else calls[number])
            for number, operator in enumerate(operators)
        ]
        others = [_item(operator, None) for operator in related]
        reply = self.ask(items, related=others, accepts=accepts, wait_s=wait_s, wait_for=wait_for)
        return list(reply.answers)

    def ask(
        self,
        items: Sequence[Mapping[str, Any]],
        *,
        related: Sequence[Mapping[str, Any]] = (),
        accepts: Mapping[str, Any] | None = None,
        include: Sequence[str] = (),
        known: Sequence[str] = (),
        revoked_since: str = "",
        wait_s: float = 0.0,
        wait_for: str = "first",
    ) -> LookupReply:
        """One ``POST /api/v1/lookup``; an item is ``{"key": …}``, ``{"graph": …}`` or both, and ``calls``.

        ``include``: ``manifest`` for the manifests of all hits but those ``known``, ``related`` for answers
        to the related ones, ``evidence`` for why each hit is trusted (:attr:`~.answer.Answer.evidence`),
        ``next`` for what jobs asked next. ``revoked_since``: the last reply's ``revoked_until``; 0: from the
        beginning. Fields that the service is too old for are left out. Raises like :meth:`lookup`.
        """
        request: dict[str, Any] = {"target": self.target.to_json(), "operators": list(items)}
        given = {
            "setting": self.setting.to_json() if self.setting is not None else None,
            "job": self.job,
            "accepts": accepts,
            "related": list(related),
            "include": list(include),
            "known": list(known),
            "revoked_since": revoked_since,
            "spend_limit": self.spend_limit,
            "free_only": self.free_only and bool(items),  # a look at related ones costs nothing
            "wait_s": wait_s,
            "wait_for": wait_for if wait_for != "first" else "",
        }
        request |= {name: value for name, value in given.items() if value}
        try:
            request, answer = self._call_named(LOOKUP, request, self.timeout_s + wait_s)
        except RefusedRequest as error:
            if self.free_only and (error.status == 409 or error.where == "free_only"):
                raise CostsSomething(_named_by(error.where, items)) from error
            raise
        try:
            asked = request["operators"], request.get("related", [])
            keys = ([item.get("key") for item in them] for them in asked)
            reply = replace(_reply(answer, *keys), revoked_since=request.get("revoked_since", ""))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ServiceError(f"The service's answer is none to a lookup: {error!r}.") from error
        self.entry_life_s, self.revoked, self.all_revoked = (
            reply.entry_life_s,
            reply.revoked,
            reply.all_revoked,
        )
        return reply

    def explain(self, item: Mapping[str, Any], accepts: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """One ``POST /api/v1/explain``: why a lookup of this item (as in :meth:`ask`) gives its answer:
        ``state``, ``sentence``, ``expected_s``, ``nearest`` entries with the fields that differ."""
        request = {"target": self.target.to_json(), "operator": dict(item)}
        if self.setting is not None:
            request["setting"] = self.setting.to_json()
        if accepts is not None:
            request["accepts"] = dict(accepts)
        answer = self.call("POST", "/api/v1/explain", request)
        if not isinstance(answer, dict) or not isinstance(answer.get("sentence"), str):
            raise ServiceError("The service's answer is no explanation.")
        return answer

    def search(self, text: str, limit: int) -> Mapping[str, Any]:
        """One ``GET /api/v1/operators/`` in any notation (``conv 56x56 fp16``): ``count``, and for each of
        the ``results`` key, op type, summary and element type."""
        from urllib.parse import urlencode

        answer = self.call("GET", f"/api/v1/operators/?{urlencode({'q': text, 'limit': limit})}")
        if not isinstance(answer, dict) or not isinstance(answer.get("results"), list):
            raise ServiceError("The service's answer is no list of operators.")
        return answer

    def fetch(self, best: Mapping[str, Any], folder: Path) -> Manifest:
        """Download a hit's manifest and files into ``folder``, for :func:`opatlas.load.load`. This only
        transports: the loader verifies every file's SHA-256. :func:`opatlas.client.fetch_and_load` checks
        everything, the signature too."""
        from opatlas.load.manifest import Manifest

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
        document = self.call("GET", f"/api/v1/artifacts/{sha256}")
        if not isinstance(document, dict):
            raise ServiceError(f"The service's answer for the manifest {sha256} is none.")
        return document

    def download(self, sha256: str, manifest: Manifest, folder: Path) -> None:
        """Put the files of an artifact's manifest into ``folder``, unverified; a partial file is
        continued."""
        from concurrent.futures import ThreadPoolExecutor

        folder.mkdir(parents=True, exist_ok=True)
        for name in manifest.files:
            if Path(name).name != name:
                raise ServiceError(f"The manifest names a file outside of its folder: {name!r}.")
        if not manifest.files:
            return
        with ThreadPoolExecutor(min(4, len(manifest.files))) as hands:
            list(hands.map(lambda name: self._download(sha256, name, folder / name), manifest.files))

    def signers(self) -> list[Mapping[str, Any]]:
        """Public keys that sign manifests, as the service lists them: ``sha256``, ``public_key``,
        ``retired_at``."""
        found: list[Mapping[str, Any]] = []
        end = time.monotonic() + self.timeout_s
        while time.monotonic() < end:
            page = self.call("GET", f"/api/v1/signers/?limit=200&offset={len(found)}")
            try:
                found += [{"sha256": row["sha256"], **row} for row in page["results"]]
                if not page["next"] or not page["results"]:
                    return found
            except (KeyError, TypeError, ValueError) as error:
                raise ServiceError(f"The service's list of signers is none: {error!r}.") from error
        raise ServiceError("The service's list of signers has no end.")

    def _call_named(
        self, path: str, document: dict[str, Any], timeout_s: float
    ) -> tuple[dict[str, Any], Any]:
        """Post a request that may be charged, under its own Idempotency-Key until it is answered. A
        repetition is byte for byte the first request, whatever came along since: a service accepts one
        request under a key. Returns the request and the answer."""
        name, wanted = os.urandom(16).hex(), document
        if self._unanswered and document["operators"]:
            name, document = self._unanswered.pop(_essence_of(document), (name, document))
        try:
            answer = self.call("POST", path, document, timeout_s, {"Idempotency-Key": f'"{name}"'})
        except ServiceError:
            if len(self._unanswered) >= MOST_UNANSWERED:
                self._unanswered.clear()
            self._unanswered[_essence_of(document)] = name, document
            raise
        except RefusedRequest:
            if document == wanted:
                raise
            return self._call_named(path, wanted, timeout_s)  # so that a refusal points into what is asked
        return document, answer

    def call(
        self,
        verb: str,
        path: str,
        document: Any = None,
        timeout_s: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """One JSON request to any path of the service; returns the JSON answer. Fields that the service is
        too old for are left out (:mod:`opatlas.client.service.capabilities`)."""

        def send(document: Any) -> Any:
            return self._call(verb, path, document, timeout_s, headers or {})

        return self.capabilities.send(path, document, send)

    def _call(
        self, verb: str, path: str, document: Any, timeout_s: float | None, headers: Mapping[str, str]
    ) -> Any:
        body = None if document is None else json_bytes(document)
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        end = time.monotonic() + timeout_s
        response = self.wire.send(verb, path, body, headers, timeout_s)
        data = all_of(response, end)
        if len(data) > MOST_VALUES and sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
            raise ServiceError(f"The service answered {response.status} with more than {MOST_VALUES} values.")
        try:
            answer = _read(data) if data else None
        except (ValueError, RecursionError) as error:
            message = f"The service answered {response.status} with something that is not JSON."
            raise ServiceError(message) from error
        if response.status >= 300:
            told = answer if isinstance(answer, dict) else {}
            sentence = told.get("error") or f"The service answered {response.status} to {verb} {path}."
            if response.status >= 500 or response.status < 400:
                raise ServiceError(str(sentence)[:2000])
            raise RefusedRequest(str(sentence)[:2000], str(told.get("where") or "")[:200], response.status)
        return answer

    def read(self, path: str, most_bytes: int) -> bytes:
        """A file of the service with at most so many bytes. Raises :class:`ServiceError`."""
        end = time.monotonic() + self.timeout_s
        response = self.wire.send("GET", path, None, {}, self.timeout_s)
        data = all_of(response, end, most_bytes)
        if response.status != 200:
            raise ServiceError(f"The service answered {response.status} to GET {path}.")
        return data

    def _download(self, sha256: str, name: str, path: Path) -> None:
        """Download to ``path`` through a partial file that the next try continues."""
        import fcntl

        from opatlas.load.files import MAX_FILE_BYTES

        part = path.with_name(path.name + ".part")
        with part.open("ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)  # two processes may want the same file
            if not part.exists() or os.fstat(stream.fileno()).st_ino != part.stat().st_ino:
                # Who had it before has finished: this is the file itself, or one that was given up.
                return None if path.exists() else self._download(sha256, name, path)
            have = stream.seek(0, os.SEEK_END)
            headers = {"Range": f"bytes={have}-"} if have else {}
            url = f"/api/v1/artifacts/{sha256}/files/{name}"
            response = self.wire.send("GET", url, None, headers, self.timeout_s)
            if response.status == 416:  # it was complete, or is another's
                stream.truncate(0)
                response.close()
                response = self.wire.send("GET", url, None, {}, self.timeout_s)
            if response.status == 200:
                stream.truncate(0)
            elif response.status != 206:
                response.close()
                part.unlink(missing_ok=True)
                raise ServiceError(f"The service answered {response.status} for file {name} of {sha256}.")
            for piece in pieces(response, time.monotonic() + self.timeout_s, SLOWEST_BYTES_S):
                stream.write(piece)
                if stream.tell() > MAX_FILE_BYTES:
                    part.unlink(missing_ok=True)
                    response.close()
                    raise ServiceError(f"File {name} of {sha256} is larger than {MAX_FILE_BYTES >> 30} GiB.")
            stream.flush()
            part.replace(path)
        return None


def _reply(answer: Any, keys: Sequence[Any], related: Sequence[Any]) -> LookupReply:
    target, setting = str(answer["target"]), str(answer["setting"])
    before = {"final": True, "expires_s": answer["entry_life_s"]}  # where it does not say how far it has come
    results = [before | item if item["status"] == "hit" else item for item in answer["results"]]
    answers = [Answer.from_json(item, target, setting) for item in results]
    others = [Answer.from_json(item, target, setting) for item in answer.get("related", ())]
    for wanted, given in ((keys, answers), (related if others else (), others)):
        if len(wanted) != len(given):
            raise ValueError(f"{len(wanted)} operators were asked for, {len(given)} are answered")
        if any(key not in (None, one.key) for key, one in zip(wanted, given, strict=True)):
            raise ValueError("the operators that it answers are not those that were asked for")
    named = {one.key for one in (*answers, *others)}
    coming = [Answer.from_json(item, target, setting) for item in answer.get("next", ())[:MOST_NEXT]]
    return LookupReply(
        answers,
        others,
        [one for one in coming if one.hit and one.key not in named],
        {_digest(sha256): dict(document) for sha256, document in answer.get("manifests", {}).items()},
        {_digest(sha256): dict(row) for sha256, row in answer.get("signers", {}).items()},
        _revoked(answer["revoked"]),
        bool(answer.get("revoked_all", False)),
        float(answer["entry_life_s"]),
        revoked_until=_cursor(answer.get("revoked_until", "")),
    )


def _named_by(where: str, items: Sequence[Mapping[str, Any]]) -> str:
    """The key of the operator that a refusal points to."""
    found = _PLACE.fullmatch(where)
    return str(items[int(found[1])].get("key", "")) if found and int(found[1]) < len(items) else ""


def _revoked(artifacts: Any) -> frozenset[str]:
    if len(artifacts) > MOST_REVOKED:  # they are kept for good
        raise ValueError(f"{len(artifacts)} artifacts are said to be revoked")
    return frozenset(map(_digest, artifacts))


def _cursor(text: Any) -> str:
    if not isinstance(text, str) or not (text == "" or _CURSOR.fullmatch(text)):
        raise ValueError(f"{str(text)[:80]!r} is no place in the list of what was revoked")
    return text


def _read(data: bytes) -> Any:
    try:
        return read_quickly(data)
    except ValueError:
        return json.loads(data)


def _essence_of(document: Mapping[str, Any]) -> bytes:
    """A digest of what is charged, without what comes along."""
    essence = {name: value for name, value in document.items() if name not in _BESIDE}
    return hashlib.sha256(json_bytes(essence)).digest()


def _digest(text: Any) -> str:
    if not isinstance(text, str) or not SHA256.fullmatch(text):
        raise ValueError(f"{str(text)[:80]!r} is no SHA-256")
    return text


def _item(operator: Operator | str, calls: float | None) -> dict[str, Any]:
    item: dict[str, Any] = {"key": operator} if isinstance(operator, str) else {"graph": operator.to_json()}
    if calls is not None:
        item["calls"] = calls
    return item
