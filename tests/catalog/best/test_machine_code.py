"""What is said where there is no machine code to show, and how it is kept."""

from __future__ import annotations

from catalog.best.machine_code import code_of, keep_code
from catalog.models import Artifact, Implementation, MachineCode


def test_what_is_withheld_has_none(put) -> None:
    row = put(64, "tvm", 2.0, kind="c-abi", needs={}).implementation
    keep_code(row, "opatlas_run:", 1, "objdump", "")
    assert code_of(Implementation.objects.get(pk=row.pk)).text == "opatlas_run:"
    row.artifact = Artifact(sha256="", kind="c-abi", manifest={})  # as REST leaves it of what is withheld
    assert code_of(row).text == "" and "withheld" in code_of(row).why_not


def test_it_is_kept_packed(put) -> None:
    row = put(64, "tvm", 2.0, kind="c-abi", needs={}).implementation
    text = "    1000:\tvfmadd231ps ymm0,ymm2,YMMWORD PTR [rdx]\n" * 3000
    keep_code(row, text, 3000, "objdump", "")
    assert len(MachineCode.objects.get().packed) < len(text) / 10
    assert code_of(Implementation.objects.get(pk=row.pk)).text == text
