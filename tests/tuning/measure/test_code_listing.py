"""Machine code as people read it: real libraries, packages and device code, hostile files, missing tools."""

from __future__ import annotations

import shutil
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.tuning.measure.kernels import RUN
from tuning.measure import code_listing, reading
from tuning.measure.code_listing import MOST_LINES, device_functions, innermost_loops, listing
from tuning.measure.laboratory import Laboratory
from tuning.routes.base import BuiltArtifact

LOOPS = """\
    1000:\txor    eax,eax
    1010:\txor    ecx,ecx
    1020:\tvmovups ymm0,YMMWORD PTR [rdi]
    1028:\tvfmadd231ps ymm1,ymm0,ymm2
    1030:\tjne    1020 <opatlas_run+0x20>
    1038:\tjne    1010 <opatlas_run+0x10>
    1040:\tjmp    1048 <opatlas_run+0x48>
    1048:\tret""".splitlines()
CUBIN = """\
\t.section\t.text.softmax,"ax",@progbits
.text.softmax:
        /*0000*/                   LDC R1, c[0x0][0x37c] ;
.L_x_0:
        /*0010*/              @P0  FFMA R2, R3, R4, R2 ;
        /*0020*/                   BRA `(.L_x_0);
.text.second:
        /*0000*/                   EXIT ;
""".splitlines()


@pytest.fixture
def ours(kernel: Callable[..., BuiltArtifact]) -> Callable[..., BuiltArtifact]:
    """``ours("honest")``: a kernel of Relu as a compiler's route would leave it."""

    def make(name: str, source: str | None = None) -> BuiltArtifact:
        built = kernel(name, source)
        return BuiltArtifact(replace(built.manifest, route="tvm"), built.folder)

    return make


def test_only_the_innermost_of_nested_loops_is_one() -> None:
    assert innermost_loops(LOOPS) == {2: 4}


def test_device_code_is_functions_with_their_labels() -> None:
    first, second = device_functions(CUBIN)
    assert (first.name, first.instructions, second.name) == ("softmax", 3, "second")
    assert ".L_x_0:" in first.lines and first.lines[2].endswith("@P0 FFMA R2, R3, R4, R2")


def test_a_kernel_is_listed_by_its_entry_and_its_loops(
    lab: Laboratory, ours: Callable[..., BuiltArtifact]
) -> None:
    loop = "static void twice(float* __restrict y, const float* x, int64_t n)"
    loop += "{ for (int64_t i = 0; i < n; i++) y[i] = x[i] * 2 + 1; }"
    body = f"{RUN} twice(t[1].data, t[0].data, count(t)); return 0; }}"
    found = lab.list_code(ours("vectors", loop + body))
    assert not found.why_not, found
    assert found.text.startswith("opatlas_run:\n") and found.tool == "objdump"
    assert found.lines == len(f"{found.text}\n".split("\n")) - 1
    loops = [line for line in found.text.splitlines() if line.startswith("; innermost loop: ")]
    assert loops and any(", 0 of them" not in line for line in loops), found.text


def test_what_is_long_is_cut_and_says_how_much_there_is(
    lab: Laboratory, ours: Callable[..., BuiltArtifact]
) -> None:
    source = f"{RUN} volatile float v = 0; {'v += 1;' * MOST_LINES} return 0; }}"
    found = lab.list_code(ours("long", source))
    assert found.lines > MOST_LINES == len(found.text.splitlines())


def test_the_library_of_a_package_is_read(
    tmp_path: Path, lab: Laboratory, ours: Callable[..., BuiltArtifact]
) -> None:
    built = ours("honest")
    (name,) = built.manifest.files
    package = tmp_path / "kernel.pt2"
    with zipfile.ZipFile(package, "w") as archive:
        archive.write(Path(built.folder) / name, "model/data/aotinductor/model/cxyz.so")
    packaged = BuiltArtifact(replace(built.manifest, files={package.name: "0" * 64}), tmp_path)
    assert lab.list_code(packaged).text == lab.list_code(built).text


@pytest.mark.parametrize(
    ("name", "content", "why_not"),
    [
        ("kernel.so", b"no library", "objdump cannot read the library"),
        ("kernel.so", b"\x7fELF\x02\x01\x01" + b"\xff" * 500, "objdump cannot read the library"),
        ("kernel.pt2", b"PK and no archive", "its package is not a readable archive"),
        ("kernel.stablehlo", b"MLIR", "the artifact holds no file of machine code"),
    ],
)
def test_what_cannot_be_read_says_why(
    tmp_path: Path,
    lab: Laboratory,
    ours: Callable[..., BuiltArtifact],
    name: str,
    content: bytes,
    why_not: str,
) -> None:
    (tmp_path / name).write_bytes(content)
    broken = BuiltArtifact(replace(ours("honest").manifest, files={name: "0" * 64}), tmp_path)
    found = lab.list_code(broken)
    assert (found.why_not, found.text) == (why_not, "")


def test_names_that_a_library_makes_up_do_nothing_to_who_reads_them(
    lab: Laboratory, ours: Callable[..., BuiltArtifact]
) -> None:
    """Symbols are any bytes: here one that would colour a terminal and turn the line round."""
    built = ours("named", f"void evilABCDEFGHname(void) {{ calls++; }} {RUN} return 0; }}")
    library = Path(built.folder) / "kernel.so"
    library.write_bytes(library.read_bytes().replace(b"ABCDEFGH", "\x1b[31m\u202e".encode()))
    found = lab.list_code(built)
    assert "evil" in found.text and not {"\x1b", "\u202e"} & set(found.text)


def test_a_disassembler_that_takes_too_long_is_ended(
    lab: Laboratory, ours: Callable[..., BuiltArtifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Seconds of work: the parent gives up within a tick, however late it gets its turn.
    long = ours("long", f'{RUN} __asm__(".rept 2000000\\n nop\\n .endr"); return 0; }}')
    monkeypatch.setattr(reading, "READ_S", 0.0)
    assert lab.list_code(long).why_not == "took longer than it may"


def test_where_the_tool_is_missing_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda *rest, **more: None)
    assert "neither objdump" in listing(tmp_path / "kernel.so")["why_not"]
    assert "nvdisasm" in listing(tmp_path / "kernel.cubin")["why_not"]


def test_code_of_others_is_read_in_a_tight_sandbox_only(
    lab: Laboratory, ours: Callable[..., BuiltArtifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ours("honest")
    theirs = BuiltArtifact(replace(built.manifest, route="cpp"), built.folder)
    monkeypatch.setattr(lab, "tier", replace(lab.tier, name="T1"))
    assert "not tight enough" in lab.list_code(theirs).why_not
    assert not lab.list_code(built).why_not


def test_a_kernel_comes_before_a_longer_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = ["0000000000000000 <runtime>:", *[f"    {n:x}:\tnop" for n in range(1, 2 * MOST_LINES)]]
    kernel = ["0000000000001000 <kernel>:", *LOOPS]
    monkeypatch.setattr(code_listing, "lines_of", lambda *_: iter([*runtime, *kernel]))
    found = listing(tmp_path / "kernel.so")
    assert found["text"].startswith("kernel:\n") and found["lines"] > MOST_LINES


def test_a_line_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ["0000000000001000 <f>:", "    1000:\tnop    " + "x" * 5000]
    monkeypatch.setattr(code_listing, "lines_of", lambda *_: iter(long))
    found = listing(tmp_path / "kernel.so")
    assert max(map(len, found["text"].splitlines())) == code_listing.LINE_CHARACTERS
