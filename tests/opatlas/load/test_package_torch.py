"""Broken ``.pt2`` packages are refused with one sentence, and nothing of them is run."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from opatlas.errors import LoadError
from opatlas.identity import Operator, parse_operator
from opatlas.load import LoadedKernel, Manifest, load
from opatlas.load.needs import installed_version
from opatlas.load.torch.package import read_packed

pytest.importorskip("torch")
RELU = parse_operator({"op": "Relu", "inputs": [{"dtype": "float32", "shape": [4]}]})


def archive(**members: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in members.items():
            made.writestr(f"kernel/data/aotinductor/model/{name.replace('__', '.')}", content)
    return stream.getvalue()


def opened(folder: Path, operator: Operator = RELU, **files: bytes) -> LoadedKernel:
    named = {name.replace("__", "."): content for name, content in files.items()}
    for name, content in named.items():
        (folder / name).write_bytes(content)
    manifest = Manifest(
        kind="package",
        route="inductor",
        operator=operator.to_json(),
        setting={"threads": 1},
        files={name: hashlib.sha256(content).hexdigest() for name, content in named.items()},
        needs={"torch": installed_version("torch") or ""},
    )
    return load(manifest, folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not a readable archive"),
        (b"PK\x03\x04 and then nothing", "not a readable archive"),
        (archive(), "has 0 compiled models"),
        (archive(a__so=b"1", b__so=b"2"), "has 2 compiled models"),
        (archive(a__so=b"no library"), "cannot be loaded"),
        (archive(a__so=b"no library", a__json=b"{}"), "cannot be loaded"),
    ],
)
def test_broken_packages_are_refused(content: bytes, reason: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=reason):
        opened(tmp_path, kernel__pt2=content)
    assert not list(tmp_path.glob("opatlas-*"))


def test_two_packages_are_one_too_many(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="has one file"):
        opened(tmp_path, a__pt2=archive(), b__pt2=archive())


@pytest.mark.parametrize(
    "document",
    [
        b"[]",
        b"{",
        b'{"constant1": {}}',
        b'{"constant1": {"buffer": "c1", "shape": [2, -2], "strides": [1, 1]}}',
    ],
)
def test_a_packing_that_says_nothing_is_refused(document: bytes) -> None:
    with pytest.raises(LoadError, match=r"packed\.json"):
        read_packed(document)


def test_packing_reaches_no_further_than_the_weight() -> None:
    import torch

    entry = {
        "buffer": "c1",
        "shape": [4, 5],
        "strides": [5, 1],
        "offset": 0,
        "padding": 3,
        "blocks": [2, 4, 4],
    }
    weight = torch.arange(20.0).reshape(4, 5)
    [packing] = read_packed(json.dumps({"constant1": entry}).encode()).values()
    padded = np.pad(weight.numpy(), ((0, 0), (0, 3)))
    expected = padded.reshape(4, 2, 4).transpose(1, 0, 2)
    np.testing.assert_array_equal(packing.pack({"c1": weight}).numpy(), expected)
    for wrong in ({"shape": [5, 5], "blocks": [2, 5, 4]}, {"offset": 9}, {"blocks": [2, 4, 5]}):
        [packing] = read_packed(json.dumps({"constant1": {**entry, **wrong}}).encode()).values()
        with pytest.raises(LoadError, match="cannot be packed"):
            packing.pack({"c1": weight})
    with pytest.raises(LoadError, match="no constant"):
        packing.pack({})
