"""Builds and tuning slices in a zygote's children; what they leave is copied out by the parent, with care."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from opatlas.identity import Operator, Setting, Target
from opatlas.load import Manifest
from tuning.measure.outcome import Outcome, Status
from tuning.measure.sandbox import wire
from tuning.measure.sandbox.foreign import MOST_LOG_CHARACTERS, plain_answer
from tuning.measure.sandbox.process import Bounds, Child, ChildFailed
from tuning.measure.sandbox.zygote import Zygote
from tuning.routes.base import BuiltArtifact, Candidate, Route

TUNING_MARGIN_S = 20.0
"""A slice is asked to end after its seconds; a trial under way may take this much longer."""
MOST_FILES = 4096


class Unusable(Exception):
    """What a child left behind is not what a build leaves: one sentence."""


def build_here(
    route: Route, operator: Operator, target: Target, setting: Setting, candidate: Candidate, workdir: Path
) -> BuiltArtifact | Outcome:
    """A build that only writes a manifest: no child is needed."""
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        return route.build(operator, target, setting, candidate, workdir)
    except Exception as error:
        # A route may raise anything to say that it cannot.
        return Outcome(Status.BUILD_FAILED, _sentence(error))


def build_in_child(
    zygote: Zygote, request: Mapping[str, Any], workdir: Path, bounds: Bounds, build_s: float
) -> BuiltArtifact | Outcome:
    """Run ``route.build`` in a child and copy what its manifest names into ``workdir``."""
    reply = wire.memory_file("reply")
    child: Child | None = None
    try:
        child = zygote.spawn({"do": "build", **request}, [reply], bounds)
        answer = child.ask(None, build_s)
        if "error" in answer:
            return _outcome(zygote, child, Status.BUILD_FAILED, str(answer["error"]))
        child.close()  # before its files are looked at: it cannot exchange them any more
        return _collect(child, wire.read_json(reply), workdir, bounds.disk_bytes)
    except ChildFailed as failed:
        return _outcome(zygote, child, failed.status, failed.detail)
    except (Unusable, OSError, KeyError, TypeError, ValueError) as error:
        return _outcome(zygote, child, Status.BUILD_FAILED, f"left no usable artifact: {_sentence(error)}")
    finally:
        os.close(reply)
        if child is not None:
            zygote.forget(child)


def tune_in_child(
    zygote: Zygote, request: Mapping[str, Any], workdir: Path, bounds: Bounds, seconds: float
) -> list[Candidate] | Outcome:
    """One slice of ``route.tune``. ``workdir`` goes in and comes back, so that the next slice goes on."""
    reply = wire.memory_file("reply")
    child: Child | None = None
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        request = {"do": "tune", "seconds": seconds, **request}
        child = zygote.spawn(request, [reply], bounds, bring_tree=workdir)
        failed: ChildFailed | None = None
        try:
            answer = child.ask(None, seconds + TUNING_MARGIN_S)
        except ChildFailed as error:
            answer, failed = {}, error
        child.close()
        candidates = _candidates(reply)
        if candidates or failed is None:
            copy_tree(child.folder / "work", workdir, bounds.disk_bytes)
        if "error" in answer and not candidates:
            return _outcome(zygote, child, Status.BUILD_FAILED, str(answer["error"]))
        if failed is not None and not candidates:
            return _outcome(zygote, child, failed.status, failed.detail)
        return candidates
    except ChildFailed as error:
        return _outcome(zygote, child, error.status, error.detail)
    except (Unusable, OSError, KeyError, TypeError, ValueError) as error:
        return _outcome(zygote, child, Status.BUILD_FAILED, f"left no usable candidates: {_sentence(error)}")
    finally:
        os.close(reply)
        if child is not None:
            zygote.forget(child)


def request_for(route: Route, operator: Operator, target: Target, setting: Setting) -> dict[str, Any]:
    """What a child needs to know to build or tune."""
    return {
        "route": route.name,
        "factory": f"{type(route).__module__}:{type(route).__qualname__}",
        "operator": operator.to_json(),
        "target": target.to_json(),
        "setting": setting.to_json(),
    }


def copy_tree(source: Path, destination: Path, most_bytes: int) -> None:
    """Copy regular files, folders kept. Links, devices and pipes are left behind; raises
    :class:`Unusable` above ``most_bytes``."""
    total = 0
    for count, (relative, size) in enumerate(_regular_files(source)):
        total += size
        if total > most_bytes or count >= MOST_FILES:
            raise Unusable(f"more than {most_bytes >> 20} MiB or {MOST_FILES} files")
        (destination / relative).parent.mkdir(parents=True, exist_ok=True)
        copy_file(source / relative, destination / relative, most_bytes)


def copy_file(source: Path, destination: Path, most_bytes: int) -> None:
    """Copy one regular file; raises :class:`Unusable` for anything else."""
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise Unusable(f"{source.name}: {error.strerror}") from error
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode) or about.st_size > most_bytes:
            raise Unusable(f"{source.name} is not a regular file of at most {most_bytes >> 20} MiB")
        destination.write_bytes(file.read(most_bytes + 1)[:most_bytes])


def _regular_files(source: Path) -> Iterator[tuple[Path, int]]:
    for folder, _, names in os.walk(source, followlinks=False):
        for name in sorted(names):
            path = Path(folder) / name
            about = path.lstat()
            if stat.S_ISREG(about.st_mode):
                yield path.relative_to(source), about.st_size


def _collect(child: Child, answer: Mapping[str, Any], workdir: Path, most_bytes: int) -> BuiltArtifact:
    manifest = Manifest.from_json(answer["manifest"])
    folder = (child.folder / "work" / str(answer["folder"])).resolve()
    if not folder.is_relative_to((child.folder / "work").resolve()):
        raise Unusable("its folder lies outside of the work folder")
    workdir.mkdir(parents=True, exist_ok=True)
    for name in manifest.files:
        if Path(name).name != name or name in ("", ".", ".."):
            raise Unusable(f"{name!r} is no plain file name")
        copy_file(folder / name, workdir / name, most_bytes)
    facts = {**plain_answer(answer["facts"], MOST_LOG_CHARACTERS), "build_s": float(answer["build_s"])}
    return BuiltArtifact(manifest, workdir, str(answer["schedule"]), str(answer["source"]), facts)


def _candidates(reply: int) -> list[Candidate]:
    if not os.fstat(reply).st_size:
        return []
    return [
        Candidate(str(item["route"]), dict(item["parameters"]), str(item["label"]))
        for item in wire.read_json(reply)
    ]


def _outcome(zygote: Zygote, child: Child | None, status: Status, detail: str) -> Outcome:
    outcome = Outcome(status, detail[:2000], tier=zygote.tier)
    if child is None:
        return outcome
    return replace(outcome, log_tail=child.log_tail(), peak_bytes=child.highest_bytes())


def _sentence(error: Exception) -> str:
    text = str(error).strip()
    return (text or type(error).__name__)[:2000]
