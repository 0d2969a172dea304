"""Every option and method of the installed ONNX Runtime has a row, and the document says the same."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import onnxruntime as ort
import pytest

import opatlas
from opatlas.session.io_binding import IOBinding
from opatlas.session.surface import (
    ARGUMENTS,
    INFERENCE_SESSION,
    IO_BINDING,
    RUN_OPTIONS,
    SESSION_OPTIONS,
    Rows,
    Treatment,
    described,
)

DOCUMENT = Path(__file__).parents[3] / "docs" / "onnxruntime.md"


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (ort.InferenceSession, INFERENCE_SESSION),
        (ort.SessionOptions, SESSION_OPTIONS),
        (ort.RunOptions, RUN_OPTIONS),
        (ort.IOBinding, IO_BINDING),
    ],
)
def test_every_option_and_method_has_a_row(kind: type, rows: Rows) -> None:
    assert {one for one in dir(kind) if not one.startswith("_")} == set(rows)


def test_every_argument_of_a_session_has_a_row() -> None:
    made = ort.InferenceSession.__init__
    named = set(inspect.signature(made).parameters) - {"self", "kwargs"}
    unnamed = re.findall(r"""kwargs(?:\.get\(|\[)["'](\w+)""", inspect.getsource(made))
    assert named | set(unnamed) == set(ARGUMENTS)


@pytest.mark.parametrize(("theirs", "ours", "rows"), [
    (ort.InferenceSession, opatlas.Session, INFERENCE_SESSION),
    (ort.IOBinding, IOBinding, IO_BINDING),
])  # fmt: skip
def test_what_a_plan_honours_is_called_as_there(theirs: Any, ours: Any, rows: Rows) -> None:
    honoured = [name for name, (treatment, _) in rows.items() if treatment is not Treatment.HANDED_ON]
    for name in ["__init__", *honoured]:
        wanted = [
            one.name
            for one in inspect.signature(getattr(theirs, name)).parameters.values()
            if one.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        assert list(inspect.signature(getattr(ours, name)).parameters)[: len(wanted)] == wanted, name


def test_the_document_is_the_table() -> None:
    assert DOCUMENT.read_text() == described(), "python -m opatlas.session.surface > docs/onnxruntime.md"
