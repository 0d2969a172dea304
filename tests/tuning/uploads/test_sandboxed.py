"""The real child, on what people upload to do harm: it ends, alone, with a sentence."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.disks import fill, small_disk
from tests.tuning.graph import making
from tuning.graph import sample_graph
from tuning.graph.apart_main import NO_ROOM
from tuning.measure import procfs
from tuning.measure.sandbox.tiers import best_tier
from tuning.queue.held import StaleLease
from tuning.uploads import sandboxed
from tuning.uploads.sandboxed import ApartFailed, UploadRefused, take_apart

WISH = {"kind": "model", "dims": {}, "as_float32": False}


@pytest.fixture
def take(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """``take(data)``: what the child says of it, in the tightest sandbox that there is."""

    def one(data: bytes, go_on: Callable[[], None] = lambda: None, tier: str = "") -> dict[str, Any]:
        body, folder = tmp_path / "body", tmp_path / "folder"
        body.write_bytes(data)
        folder.mkdir()
        return take_apart(body, WISH, tier or best_tier().name, folder, go_on)

    return one


def long_chain(count: int) -> bytes:
    """1 MiB at 60,000 nodes, which the web server took six seconds each for."""
    nodes = [helper.make_node("Relu", [f"v{n}"], [f"v{n + 1}"]) for n in range(count)]
    return making.model(nodes, {"v0": [4]}, [f"v{count}"]).SerializeToString()


def test_a_model_comes_back_as_json(take: Callable[..., dict[str, Any]]) -> None:
    found = take(sample_graph("resnet50"))
    assert (found["form"], len(found["operators"])) == ("onnx", 56)
    assert found["structure"]


def test_sixty_thousand_nodes_are_refused(take: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(UploadRefused, match="The model has 60000 nodes; at most 50000 are accepted"):
        take(long_chain(60_000))


def test_what_needs_more_of_a_processor_than_it_may_ends(
    take: Callable[..., dict[str, Any]], configure: Any
) -> None:
    configure(upload_cpu_s=1.0)
    with pytest.raises(UploadRefused, match="needs more than 1 s of a processor"):
        take(long_chain(45_000))


def test_what_needs_more_memory_than_it_may_ends(take: Callable[..., dict[str, Any]], configure: Any) -> None:
    """Ten million empty objects in 30 MB of JSON."""
    configure(upload_memory_mib=400)
    with pytest.raises(UploadRefused, match="needs more than 400 MiB of memory"):
        take(b"[" + b"{}," * 10_000_000 + b"{}]")


def test_deep_nesting_is_refused(take: Callable[..., dict[str, Any]]) -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=making.nested(9), else_branch=making.nested(9))
    with pytest.raises(UploadRefused, match="nested deeper than 8 levels"):
        take(making.model([node], {"x": [4], "c": []}, ["y"]).SerializeToString())


def test_what_takes_too_long_ends(take: Callable[..., dict[str, Any]], configure: Any) -> None:
    configure(upload_s=1.0)
    with pytest.raises(UploadRefused, match="took longer than 1 s"):
        take(long_chain(45_000))


def endless_loop() -> bytes:
    """``while n != 0: n -= 2`` from a constant 7 on: whoever ran or folded it would not come back."""
    body = helper.make_graph(
        [
            helper.make_node("Sub", ["n", "two"], ["next"]),
            helper.make_node("Equal", ["next", "zero"], ["ended"]),
            helper.make_node("Not", ["ended"], ["goes_on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("go", TensorProto.BOOL, []),
            helper.make_tensor_value_info("n", TensorProto.INT64, []),
        ],
        [
            helper.make_tensor_value_info("goes_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.INT64, []),
        ],
    )
    nodes = [
        helper.make_node("Loop", ["", "true", "seven"], ["last"], body=body),
        helper.make_node("Add", ["x", "last"], ["y"]),
    ]
    constants = {"two": np.int64(2), "zero": np.int64(0), "seven": np.int64(7), "true": np.bool_(True)}
    return making.model(nodes, {"x": [4]}, ["y"], constants, element=TensorProto.INT64).SerializeToString()


def test_a_loop_without_an_end_is_taken_apart_and_not_run(take: Callable[..., dict[str, Any]]) -> None:
    found = take(endless_loop())
    types = {node["op"] for one in found["operators"] for node in one["graph"]["nodes"]}
    assert types == {"Sub", "Equal", "Not", "Add"}
    assert found["unmapped"] == {"control flow (Loop)": 1}


def grown(nodes: list[Any], **constants: Any) -> bytes:
    return making.model(nodes, {"x": [4]}, ["y"], constants).SerializeToString()


def inlined(count: int) -> bytes:
    """Functions, each of which calls the one before twice."""
    own = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    made = [helper.make_function("own", "f0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], own)]
    for number in range(1, count):
        calls = [
            helper.make_node(f"f{number - 1}", [given], [named], domain="own")
            for given, named in (("a", "m"), ("m", "b"))
        ]
        made.append(helper.make_function("own", f"f{number}", ["a"], ["b"], calls, own))
    node = helper.make_node(f"f{count - 1}", ["x"], ["y"], domain="own")
    return making.model([node], {"x": [4]}, ["y"], functions=made).SerializeToString()


GROWING = {
    "a constant of 2 TB": (
        grown(
            [helper.make_node("ConstantOfShape", ["s"], ["c"]), helper.make_node("Mul", ["c", "x"], ["y"])],
            s=np.array([1 << 30, 512, 4]),
        ),
        "",
    ),
    "a shape that is a range of 8 TB": (
        grown(
            [
                helper.make_node("Range", ["a", "b", "d"], ["s"]),
                helper.make_node("Reshape", ["x", "s"], ["y"]),
            ],
            a=np.int64(0), b=np.int64(1 << 40), d=np.int64(1),
        ),
        "depends on data",
    ),
    "a shape that doubles forty times": (
        grown(
            [
                helper.make_node("Shape", ["x"], ["s0"]),
                *(helper.make_node("Concat", [f"s{n}"] * 2, [f"s{n + 1}"], axis=0) for n in range(40)),
                helper.make_node("Reshape", ["x", "s40"], ["y"]),
            ]
        ),
        "depends on data",
    ),
    "a size beyond 64 bits": (
        grown(
            [
                helper.make_node("Identity", ["x"], ["s0"]),
                *(helper.make_node("Concat", [f"s{n}"] * 2, [f"s{n + 1}"], axis=0) for n in range(99)),
                helper.make_node("Identity", ["s99"], ["y"]),
            ]
        ),
        "overflow",
    ),
    "functions that call each other twice": (inlined(40), "With its functions inlined"),
}  # fmt: skip


@pytest.mark.parametrize("what", GROWING)
def test_what_grows_when_it_is_computed_is_never_computed(
    take: Callable[..., dict[str, Any]], configure: Any, what: str
) -> None:
    """Within a quarter of the memory that it may have by default: taken apart, or refused in a sentence."""
    configure(upload_memory_mib=512)
    data, sentence = GROWING[what]
    try:
        said = str(take(data)["unmapped"])
    except UploadRefused as refused:
        said = str(refused)
    assert sentence in said and "broke what takes uploads apart" not in said
    assert "MiB of memory" not in said


@pytest.mark.parametrize("tier", ["T0", ""])
def test_what_must_not_go_on_is_killed(take: Callable[..., dict[str, Any]], tier: str) -> None:
    def no_more() -> None:
        raise StaleLease

    before = {*procfs.family(os.getpid())}
    with pytest.raises(StaleLease):
        take(long_chain(45_000), no_more, tier)
    assert {*procfs.family(os.getpid())} <= before, "nothing of it goes on"


@pytest.mark.parametrize("tier", ["T0", ""])
def test_a_child_that_somebody_kills_is_not_the_uploads_fault(
    take: Callable[..., dict[str, Any]], tier: str
) -> None:
    before = {*procfs.family(os.getpid())}

    def kill_it() -> None:
        for pid in {*procfs.family(os.getpid())} - before:
            procfs.kill(pid)

    with pytest.raises(ApartFailed, match="killed from outside"):
        take(long_chain(45_000), kill_it, tier)


def test_an_answer_that_finds_no_room_is_the_disks_fault(tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(long_chain(20))
    with small_disk(tmp_path / "small", 64) as disk:
        folder = disk / "folder"
        folder.mkdir()
        fill(disk)
        with pytest.raises(OSError) as full:
            take_apart(body, WISH, "T0", folder, lambda: None)
    assert full.value.errno == errno.ENOSPC


def test_who_says_that_there_was_no_room_while_there_is_is_tried_again(
    take: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has taken the parser over may end as it likes, and is not to stop the worker by it."""
    monkeypatch.setattr(sandboxed, "_run", lambda *_: NO_ROOM)
    with pytest.raises(ApartFailed, match="no room"):
        take(b"x")
