"""From a hit to a callable: all checks come before loading, each refusal with its reason."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from opatlas.client.answer import Answer
from opatlas.client.service.rest import RestClient
from opatlas.errors import CallerError, LoadError
from opatlas.identity import Operator, Setting, Target, detect_target
from opatlas.identity.place.cuda import NoDevice, detect_gpus
from opatlas.identity.place.kinds import CPU
from opatlas.identity.place.neighbours import THREADS, sizes_that_differ
from opatlas.identity.place.setting import default_setting
from opatlas.identity.rekey import rekey
from opatlas.load import Manifest, load
from opatlas.load.files import check_name
from opatlas.load.kernel import LoadedKernel
from opatlas.load.manifest import BUILT_FOR_THREADS
from opatlas.load.needs import check_features, check_versions
from opatlas.load.signing import verify, verify_network, verify_plan


class Refused(LoadError):
    """An artifact that was not loaded. ``why`` is one word; ``str()`` is the sentence.

    revoked, manifest, unknown-signer, retired-signer, signature, address, operator, setting, target, feature,
    version, file.
    """

    def __init__(self, why: str, message: str) -> None:
        super().__init__(message)
        self.why = why


@dataclass(frozen=True)
class Trust:
    """The keys whose signatures are valid: raw public keys (32 bytes) by SHA-256, and those that are
    retired."""

    keys: Mapping[str, bytes]
    retired: Mapping[str, str] = field(default_factory=dict)  # SHA-256 → since when

    @classmethod
    def in_keys(cls, keys: Iterable[bytes]) -> Trust:
        """Exactly these keys, whatever a service says."""
        return cls({hashlib.sha256(key).hexdigest(): key for key in keys})

    @classmethod
    def of_service(cls, client: RestClient) -> Trust:
        """The service's list: as safe as the connection to it (https)."""
        return cls.in_rows({row["sha256"]: row for row in client.signers()})

    @classmethod
    def in_rows(cls, rows: Mapping[str, Mapping[str, Any]]) -> Trust:
        """The keys that a service named, by SHA-256: ``public_key``, and ``retired_at`` or None."""
        keys, retired = dict[str, bytes](), dict[str, str]()
        for sha256, row in rows.items():
            try:
                key, since = bytes.fromhex(row["public_key"]), row["retired_at"]
            except (KeyError, TypeError, ValueError):
                continue  # no key: nobody signed with it
            if hashlib.sha256(key).hexdigest() == sha256:
                keys[sha256] = key
                retired |= {sha256: str(since)} if since else {}
        return cls(keys, retired)

    def check(self, manifest: Manifest, signature: str, signer: str) -> None:
        """Raises :class:`Refused` unless the signature is by a trusted key that is not retired."""
        self._check("manifest", signature, signer, partial(verify, manifest))

    def check_network(self, document: Mapping[str, Any], signature: str, signer: str) -> None:
        """The same for the description of a predictor's network."""
        self._check("network", signature, signer, partial(verify_network, document))

    def check_plan(self, document: Mapping[str, Any], signature: str, signer: str) -> None:
        """The same for a model's plan."""
        self._check("plan", signature, signer, partial(verify_plan, document))

    def _check(self, what: str, signature: str, signer: str, verifies: Callable[..., None]) -> None:
        if not signature:
            raise Refused("unknown-signer", f"The {what} is not signed.")
        key = self.keys.get(signer)
        if key is None:
            raise Refused("unknown-signer", f"The {what}'s signer {signer[:12]}… is not trusted.")
        if signer in self.retired:
            since = self.retired[signer]
            raise Refused("retired-signer", f"The {what}'s signer {signer[:12]}… was retired on {since}.")
        try:
            verifies(bytes.fromhex(signature), [key])
        except (LoadError, ValueError) as error:
            message = f"The signature does not fit the {what}: one of them was changed."
            raise Refused("signature", message) from error


def fetch_and_load(
    client: RestClient, answer: Answer, folder: Path, trust: Trust | None = None
) -> LoadedKernel:
    """Download a hit's artifact into ``folder``, verify all of it, and load it.

    ``trust``: whose signatures are valid (default: the service's list). Checked in this order: not revoked;
    signer known and not retired; signature; address; the operator, setting and target asked for; CPU
    features; exact versions. Then files are fetched and their digests compared. Raises :class:`Refused` for
    whatever does not fit, and :class:`LoadError` if the kind's own loader fails.
    """
    sha256 = address_of(answer, client.revoked, client.all_revoked)
    document = client.manifest(sha256)
    manifest = checked_manifest(document, answer, client.target, lambda: trust or Trust.of_service(client))
    client.download(sha256, manifest, folder)
    return load_checked(manifest, folder, threads_here(client.target, answer))


def address_of(answer: Answer, revoked: Collection[str], all_revoked: bool = False) -> str:
    """A hit's artifact, unless it was revoked."""
    if answer.best is None:
        raise CallerError(f"There is nothing to load: the answer for {answer.key} is a {answer.status}.")
    sha256 = str(answer.best["artifact"])
    if all_revoked or sha256 in revoked:
        raise Refused("revoked", f"Artifact {sha256[:12]}… was revoked: look the operator up again.")
    return sha256


def checked_manifest(
    document: Mapping[str, Any], answer: Answer, target: Target, trust: Callable[[], Trust]
) -> Manifest:
    """A hit's manifest, after all checks that need no files."""
    sha256 = str((answer.best or {})["artifact"])
    manifest = _parsed(document)
    trust().check(manifest, document["signature"], document["signer"])
    if manifest.sha256 != sha256:
        raise Refused("address", f"The manifest is of {manifest.sha256[:12]}…, not of {sha256[:12]}….")
    _check_asked(target, answer, manifest)
    _refusing("feature", check_features, manifest.features)
    _refusing("version", check_versions, manifest.needs)
    return manifest


def load_checked(manifest: Manifest, folder: Path, threads: int | None = None) -> LoadedKernel:
    """Compare the files with the manifest, and load them (``threads``: :func:`opatlas.load.load`)."""
    for name, digest in manifest.files.items():
        found = hashlib.sha256((folder / name).read_bytes()).hexdigest()
        if found != digest:
            message = f"File {name} has the SHA-256 {found[:12]}…, but the manifest says {digest[:12]}…."
            raise Refused("file", message)
    # It reads and compares once more: what is checked is what is loaded.
    return load(manifest, folder, threads)


def _parsed(document: Mapping[str, Any]) -> Manifest:
    try:
        manifest = Manifest.from_json(document["manifest"])
        manifest.to_bytes()
        for name in manifest.files:
            check_name(name)
        str(document["signature"]), str(document["signer"])
    except (KeyError, TypeError, ValueError, AttributeError, LoadError) as error:
        raise Refused("manifest", f"The manifest cannot be read: {error!r}.") from error
    return manifest


def _check_asked(asked: Target, answer: Answer, manifest: Manifest) -> None:
    """The artifact must be for what was asked, and that for this machine."""
    if not _is_operator(manifest.operator, answer.key):
        raise Refused("operator", f"The artifact is not for the operator {answer.key}.")
    setting = Setting.from_json(manifest.setting)
    if answer.setting and setting.key != answer.setting and not _has_other_threads(asked, answer, manifest):
        raise Refused("setting", f"The artifact is for the setting {setting.key}, not for {answer.setting}.")
    if answer.target and answer.target != asked.key:
        message = f"The service answered for the target {answer.target}, not for {asked.key}."
        raise Refused("target", message)
    if answer.from_neighbour is not None:
        _check_neighbour(asked, answer.from_neighbour, manifest)
    machine = _of_this_machine(asked.kind)
    if (asked.isa, asked.arch, asked.vendor) not in [(one.isa, one.arch, one.vendor) for one in machine]:
        have = ", ".join(one.arch for one in machine)
        raise Refused("target", f"It was asked for {asked.arch} ({asked.isa}), but this machine is {have}.")


def _check_neighbour(asked: Target, mark: Mapping[str, Any], manifest: Manifest) -> None:
    """An artifact of another target's workers may differ from here in sizes alone, whatever the service says.
    A library's call is for no target; compiled code names its target in the signed manifest."""
    if manifest.kind == "recipe":
        return
    try:
        made_for = Target.from_json((manifest.provenance or {})["target"])
    except (KeyError, TypeError, CallerError) as error:
        raise Refused("target", "It is another target's, and its manifest does not say which.") from error
    if made_for.key != mark["target"] or sizes_that_differ(asked, made_for) is None:
        message = f"It was made for {made_for.arch} ({made_for.key}), which is no neighbour of {asked.key}."
        raise Refused("target", message)


def _has_other_threads(asked: Target, answer: Answer, manifest: Manifest) -> bool:
    """Whether it was made for all cores of a neighbour when all own cores are asked for, and the answer says
    for how many threads. Nothing else of the setting may differ."""
    mark, own, made = answer.from_neighbour, default_setting(asked), Setting.from_json(manifest.setting)
    if mark is None or own.key != answer.setting or replace(made, threads=own.threads) != own:
        return False
    if manifest.kind == BUILT_FOR_THREADS and made.threads > own.threads:
        return False
    return bool(mark["differs"].get(THREADS, {}).get("neighbour") == made.threads)


def threads_here(asked: Target, answer: Answer) -> int | None:
    """The number of threads for a checked hit; None: its setting's."""
    mark, own = answer.from_neighbour, default_setting(asked)
    differ = mark is not None and THREADS in mark["differs"] and answer.setting == own.key
    return own.threads if differ else None


def _of_this_machine(kind: str) -> Sequence[Target]:
    """This machine's processor, or its devices of a kind."""
    if kind == CPU.name:
        return (detect_target(),)
    try:
        return detect_gpus()
    except NoDevice as why:
        raise Refused("target", f"It was asked for a target of kind {kind}. {why}") from why


def _is_operator(graph: Mapping[str, Any], key: str) -> bool:
    # A manifest stays as it was signed when a rule of canonicalising changes: then its key is found anew.
    return Operator.from_json(graph).key == key or rekey(graph).key == key


def _refusing(why: str, check: Any, what: Any) -> None:
    try:
        check(what)
    except LoadError as error:
        raise Refused(why, f"The artifact {error}.") from error
