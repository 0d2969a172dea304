"""A StableHLO package loads in a fresh process with exactly its JAX, and nothing else is believed."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
export = pytest.importorskip("jax.export")

from opatlas.errors import LoadError  # noqa: E402
from opatlas.identity import Setting, parse_operator  # noqa: E402
from opatlas.load import Manifest, load  # noqa: E402
from opatlas.load.kernel import KernelFailed  # noqa: E402

ROOT = Path(__file__).parents[3]


def product_operator():
    """[4, 8] @ [8, 16], the second constant."""
    values = [{"dtype": "float32", "shape": [4, 8]}, {"dtype": "float32", "shape": [8, 16], "const": True}]
    return parse_operator({"op": "MatMul", "attrs": {}, "inputs": values})


def package(folder: Path, function=lambda x, w: x @ w, shapes=((4, 8), (8, 16)), **changes) -> Manifest:
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    exported = export.export(jax.jit(function), platforms=["cpu"])(*arguments)
    contents = {"kernel.stablehlo": bytes(exported.serialize()), **changes.pop("more", {})}
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    manifest = Manifest(
        kind="package",
        route="xla",
        operator=product_operator().to_json(),
        setting=Setting(threads=2).to_json(),
        files={name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
        needs={name: metadata.version(name) for name in ("jax", "jaxlib")},
    )
    return replace(manifest, **changes)


def inputs() -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(3).standard_normal
    return draw((4, 8)).astype(np.float32), draw((8, 16)).astype(np.float32)


def test_calls_follow_the_input_in_place(tmp_path: Path) -> None:
    x, w = inputs()
    kernel = load(package(tmp_path), tmp_path)
    kernel.prepare({1: w})
    bound = kernel.bind({0: x})
    for _ in range(2):
        bound()
        np.testing.assert_allclose(bound.outputs()[0], x @ w, rtol=1e-5, atol=1e-5)
        x *= -3
    kernel.close()


def test_input_at_an_odd_address_is_copied_in_every_call(tmp_path: Path) -> None:
    x, w = inputs()
    memory = np.zeros(x.size + 32, np.float32)
    skip = (-memory.ctypes.data % 64) // 4 + 1  # four bytes beyond a multiple of 64
    odd = memory[skip : skip + x.size].reshape(x.shape)
    kernel = load(package(tmp_path), tmp_path)
    kernel.prepare({1: w})
    bound = kernel.bind({0: odd})
    odd[...] = x
    bound()
    np.testing.assert_allclose(bound.outputs()[0], x @ w, rtol=1e-5, atol=1e-5)


def test_poisoned_outputs_are_gone_and_inputs_stay(tmp_path: Path) -> None:
    x, w = inputs()
    kernel = load(package(tmp_path), tmp_path)
    kernel.prepare({1: w})
    bound = kernel.bind({0: x})
    with pytest.raises(KernelFailed, match="not called yet"):
        bound.outputs()
    bound()
    seen, before = bound.outputs()[0], x.copy()
    bound.poison()
    assert np.isnan(seen).all()
    np.testing.assert_array_equal(x, before)
    bound()
    np.testing.assert_allclose(bound.outputs()[0], x @ w, rtol=1e-5, atol=1e-5)


def test_constants_come_before_inputs(tmp_path: Path) -> None:
    kernel = load(package(tmp_path), tmp_path)
    with pytest.raises(LoadError, match="call prepare before bind"):
        kernel.bind({0: inputs()[0]})


def test_options_on_the_list_are_taken(tmp_path: Path) -> None:
    x, w = inputs()
    options = json.dumps({"xla_cpu_prefer_vector_width": "256"}).encode()
    kernel = load(package(tmp_path, more={"options.json": options}), tmp_path)
    kernel.prepare({1: w})
    bound = kernel.bind({0: x})
    bound()
    np.testing.assert_allclose(bound.outputs()[0], x @ w, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"options.json": b'{"xla_dump_to": "/tmp"}'}, "xla_dump_to='/tmp' is not on the list"),
        ({"options.json": b"[]"}, "is not an object"),
        ({"options.json": b"{"}, "is not JSON"),
        ({"readme.txt": b"hello"}, "has no file 'readme.txt'"),
    ],
)
def test_other_files_and_options_are_refused(more, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=sentence):
        load(package(tmp_path, more=more), tmp_path)


def test_version_must_be_exact(tmp_path: Path) -> None:
    manifest = package(tmp_path, needs={"jax": "0.4.1", "jaxlib": metadata.version("jaxlib")})
    with pytest.raises(LoadError, match=r"needs jax 0\.4\.1, but .* is installed"):
        load(manifest, tmp_path)


def test_both_versions_must_be_stated(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="exact jaxlib"):
        load(package(tmp_path, needs={"jax": metadata.version("jax")}), tmp_path)
    with pytest.raises(LoadError, match="exact jax "):
        load(package(tmp_path, needs={}), tmp_path)


def test_missing_jax_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = package(tmp_path)
    monkeypatch.setitem(sys.modules, "opatlas.load.package_stablehlo", None)
    with pytest.raises(LoadError, match="needs jax, which cannot be imported"):
        load(manifest, tmp_path)


def test_tampered_byte_is_refused(tmp_path: Path) -> None:
    manifest = package(tmp_path)
    content = bytearray((tmp_path / "kernel.stablehlo").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kernel.stablehlo").write_bytes(content)
    with pytest.raises(LoadError, match=r"kernel\.stablehlo"):
        load(manifest, tmp_path)


def test_program_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.stablehlo").write_bytes(b"not a program at all, but long enough to be looked at")
    digest = hashlib.sha256((tmp_path / "kernel.stablehlo").read_bytes()).hexdigest()
    manifest = replace(package(tmp_path), files={"kernel.stablehlo": digest})
    (tmp_path / "kernel.stablehlo").write_bytes(b"not a program at all, but long enough to be looked at")
    with pytest.raises(LoadError, match="no exported JAX program"):
        load(manifest, tmp_path)


def test_program_of_another_operator_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="the package takes"):
        load(package(tmp_path, shapes=((4, 8), (8, 17))), tmp_path)
    with pytest.raises(LoadError, match="the package makes"):
        load(package(tmp_path, lambda x, w: (x @ w).sum(0)), tmp_path)


_FRESH = """
import json, sys
from pathlib import Path
import numpy as np
from opatlas.load import Manifest, load
folder = Path(sys.argv[1])
kernel = load(Manifest.from_json(json.loads((folder / "manifest.json").read_text())), folder)
kernel.prepare({1: np.ones((8, 16), np.float32)})
bound = kernel.bind({0: np.ones((4, 8), np.float32)})
bound()
assert (bound.outputs()[0] == 8).all()
from jax._src import xla_bridge
assert not xla_bridge._backends, "a job's own JAX was started"
assert not {"tuning", "django", "torch"} & set(sys.modules)
"""


def test_fresh_process_needs_only_the_loader_and_jax(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(package(tmp_path).to_json()))
    subprocess.run([sys.executable, "-c", _FRESH, str(tmp_path)], check=True, cwd=ROOT, timeout=240)
