"""Extreme numbers and texts in every field of the files that the service takes: models, operator lists,
kernels' metadata, measurements, backups. Each is read, or refused in one sentence, soon."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from django.contrib.auth.models import User
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from onnx import TensorProto, helper

from dashboard.run.backing_up import FORMAT as BACKUP_FORMAT
from dashboard.run.backing_up import MANIFEST
from dashboard.run.restoring import NotRestored, _manifest
from opatlas.errors import CallerError
from tests.catalog import making
from tests.extremes import SLOWEST_S, drawn, json_values, leaves, with_value
from tests.tenancy.test_matrix import browser
from tuning.bare.lines import read_lines
from tuning.bare.measuring import FORMAT
from tuning.graph import apart_main
from tuning.importing import import_measurements

NIGHTLY = [2, pytest.param(99, marks=[pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(3600)])]
DATA = Path(__file__).parents[1] / "data"
RECORDS = json.loads((DATA / "aten_calls.json").read_text())["records"]
WHOLE = (0, -1, 1, 7, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, -(2**63))
FLOATS = (0.0, -1.0, 1e-45, 3e38, -3e38, float("inf"), float("-inf"), float("nan"))
WORDS = ("", " ", " " * 10**6, "x" * 10**6, "\0", "a\0b", "１２", "../../x")


def model() -> onnx.ModelProto:
    """Small, with a field of most kinds: attributes, an initializer, names, a symbolic dimension."""
    values = {
        "x": helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8]),
        "y": helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 6, 6]),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "one", kernel_shape=[3, 3], pads=[0, 0, 0, 0]),
        helper.make_node("LeakyRelu", ["c"], ["r"], "two", alpha=0.1),
        helper.make_node("Pad", ["r", "p"], ["y"], "three", mode="constant"),
    ]
    weights = [
        helper.make_tensor("w", TensorProto.FLOAT, [2, 3, 3, 3], [0.5] * 54),
        helper.make_tensor("p", TensorProto.INT64, [8], [0] * 8),
    ]
    graph = helper.make_graph(nodes, "g", [values["x"]], [values["y"]], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def messages(one: Message, way: str = "") -> Iterator[tuple[str, Message, FieldDescriptor]]:
    """Every field that is set, deep."""
    for field, value in one.ListFields():
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            for at, inner in enumerate(value if field.is_repeated else [value]):
                yield from messages(inner, f"{way}.{field.name}[{at}]")
        else:
            yield f"{way}.{field.name}", one, field


def changed_models(most: int) -> Iterator[tuple[str, bytes]]:
    count = len(list(messages(model())))
    for number in range(count):
        name, _, field = list(messages(model()))[number]
        for value in drawn(name, _values(field), most):
            whole = model()
            _, inner, field = list(messages(whole))[number]
            try:
                if field.is_repeated:
                    getattr(inner, field.name)[0] = value
                else:
                    setattr(inner, field.name, value)
            except ValueError:  # an enumeration, or 32 bits
                continue
            yield f"{name}={str(value)[:20]!r}", whole.SerializeToString()


def _values(field: FieldDescriptor) -> tuple[Any, ...]:
    if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
        return FLOATS
    if field.type == FieldDescriptor.TYPE_STRING:
        return WORDS
    return tuple(word.encode() for word in WORDS) if field.type == FieldDescriptor.TYPE_BYTES else WHOLE


def changed_lists(most: int) -> Iterator[tuple[str, bytes]]:
    """Of some operators, one with each set of fields."""
    kinds = {tuple(sorted({*one, *one["attrs"]})): one for one in RECORDS}
    for record in list(kinds.values())[:12]:
        for way in leaves([record]):
            name = ".".join(map(str, way))
            for value in json_values(name, most):
                yield f"{name}={value[:20]}", with_value([record], way, value).encode()


def apart(kind: str, data: bytes) -> dict[str, Any]:
    """As the sandboxed child would."""
    wish = {"kind": kind, "dims": None, "as_float32": False, "nodes": 50_000, "memory_bytes": 2 << 30}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(apart_main.sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read=lambda: data)))
        return dict(json.loads(json.dumps(apart_main._answer(wish))))


def faults(files: Iterator[tuple[str, Any]], read: Callable[[Any], str | None]) -> tuple[list[str], int]:
    """What was neither read nor refused in a sentence; how many were tried. ``read`` gives the refusal."""
    wrong, tried = [], 0
    for name, data in files:
        tried += 1
        began = time.thread_time()
        try:
            refused = read(data)
        except Exception as error:  # whatever it is
            wrong.append(f"{name}: {error!r}"[:400])
            continue
        if time.thread_time() - began > SLOWEST_S:
            wrong.append(f"{name}: {time.thread_time() - began:.1f} s")
        if refused is not None and not 0 < len(refused) <= 1000:
            wrong.append(f"{name}: says {refused[:200]!r}")
    return wrong, tried


@pytest.mark.parametrize("most", NIGHTLY)
@pytest.mark.parametrize(("kind", "files"), [("model", changed_models), ("list", changed_lists)])
def test_models_and_operator_lists(kind: str, files: Any, most: int) -> None:
    kept: list[dict[str, Any]] = []

    def read(data: bytes) -> str | None:
        found = apart("model", data)
        kept.append(found)
        return found.get("refused")

    wrong, tried = faults(files(most), read)
    assert not wrong, "\n".join(wrong)
    assert tried > 50 and any("refused" in one for one in kept) and any("refused" not in one for one in kept)


@pytest.mark.parametrize("most", NIGHTLY)
def test_kernels_metadata(tmp_path: Path, most: int) -> None:
    from django.core.management.base import CommandError

    from tuning.kernels.management.commands.submit_kernel import read_submission
    from tuning.kernels.shipped import FOLDERS

    (tmp_path / "one.c").write_text("int opatlas_run(void) { return 0; }")

    def documents() -> Iterator[tuple[str, str]]:
        for folder in FOLDERS.values():
            document = json.loads(next(iter(sorted(folder.glob("*.json")))).read_text())
            for way in leaves({**document, "file": "one.c"}):
                name = ".".join(map(str, way))
                for value in json_values(name, most):
                    yield f"{name}={value[:20]}", with_value({**document, "file": "one.c"}, way, value)

    def read(text: str) -> str | None:
        (tmp_path / "one.json").write_text(text)
        try:
            return next((str(one) for one in read_submission(tmp_path / "one.json").problems()), None)
        except (CommandError, CallerError) as error:
            return str(error)

    wrong, tried = faults(documents(), read)
    assert not wrong, "\n".join(wrong)
    assert tried > 50


def measured() -> dict[str, Any]:
    """A line of measurements: the default and another, in one final."""
    place = {
        "operator": SimpleNamespace(graph=making.relu(64).to_json()),
        "setting": SimpleNamespace(description=making.SETTING.to_json()),
    }
    entries = []
    for route, ratio in (("eager", 1.0), ("tvm", 2.0)):
        made = making.new_result({**place, "target": None}, route, ratio)
        entries.append({
            "route": route, "method": made.method, "label": made.label, "candidate": made.candidate,
            "status": "ok", "manifest": made.manifest.to_json(), "files": {}, "versions": made.versions,
            "evidence": asdict(made.evidence), "schedule": "", "source": "", "facts": {"final": True},
        })  # fmt: skip
    return {
        "format": FORMAT, "operator": making.relu(64).to_json(), "target": making.TARGET.to_json(),
        "setting": making.SETTING.to_json(), "default": {"route": "eager", "versions": {"torch": "2.13.0"}},
        "entries": entries[::-1],
    }  # fmt: skip


@pytest.mark.django_db
@pytest.mark.parametrize("most", NIGHTLY)
def test_measurements(tmp_path: Path, configure: Any, most: int) -> None:
    configure(store=tmp_path / "store", home=tmp_path / "home")
    assert import_measurements([measured()]).published == 2

    def lines() -> Iterator[tuple[str, str]]:
        for way in leaves(measured()):
            name = ".".join(map(str, way))
            for value in json_values(name, most):
                yield f"{name}={value[:20]}", with_value(measured(), way, value)

    def read(text: str) -> str | None:
        (tmp_path / "lines.jsonl").write_text(text + "\n")
        return next(iter(import_measurements(read_lines(tmp_path / "lines.jsonl")).refused), None)

    wrong, tried = faults(lines(), read)
    client = browser(User.objects.create_superuser("root"))
    for path in ("/", "/operators/", "/methods/", "/targets/"):  # what was taken breaks no page
        if client.get(path).status_code >= 500:
            wrong.append(f"{path} breaks")
    assert not wrong, "\n".join(wrong)
    assert tried > 100


def test_a_backups_manifest(tmp_path: Path) -> None:
    given: dict[str, Any] = {"sha256": "0" * 64, "format": BACKUP_FORMAT, "files": {"a": ["0", 1]}}

    def documents() -> Iterator[tuple[str, str]]:
        yield from ((f"whole {value[:20]}", value) for value in json_values("", 99))
        yield "nested", "[" * 100_000
        for way in leaves(given):
            for value in json_values(str(way), 99):
                yield f"{way}={value[:20]}", with_value(given, way, value)

    def read(text: str) -> str | None:
        (tmp_path / MANIFEST).write_text(text)
        try:
            _manifest(tmp_path, tmp_path)
        except NotRestored as refused:
            return str(refused)
        return ""  # taken, as nothing here may be

    wrong, tried = faults(documents(), read)
    assert not wrong, "\n".join(wrong)
    assert tried > 100
