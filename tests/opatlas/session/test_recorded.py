"""What is called on ONNX Runtime's options is noted, whichever of the two is imported first."""

from __future__ import annotations

import gc
import subprocess
import sys

import onnxruntime as ort
import pytest

from opatlas.session import recorded
from opatlas.session.recorded import calls_of

CALLS = """
options = ort.SessionOptions()
options.add_session_config_entry("session.a", "1")
options.add_free_dimension_override_by_name("batch", 2)
from opatlas.session.recorded import calls_of
assert [name for name, _ in calls_of(options)] == [
    "add_session_config_entry", "add_free_dimension_override_by_name"
]
"""


@pytest.mark.parametrize(
    "imports",
    [
        "import opatlas, sys\nassert 'onnxruntime' not in sys.modules\nimport onnxruntime as ort",
        "import onnxruntime as ort\nbefore = ort.SessionOptions()\nimport opatlas\n"
        "from opatlas.session.recorded import calls_of\nassert calls_of(before) is None",
        "from opatlas import Session\nimport onnxruntime as ort",
        "import opatlas\nfrom onnxruntime.capi import _pybind_state\nimport onnxruntime as ort",
    ],
)
def test_in_whichever_order_they_are_imported(imports: str) -> None:
    subprocess.run([sys.executable, "-c", imports + CALLS], check=True, timeout=60)


def test_a_class_of_ones_own_is_noted_too_and_nothing_is_kept_of_what_is_gone() -> None:
    class Mine(ort.SessionOptions):
        def __init__(self) -> None:
            super().__init__()
            self.add_session_config_entry("session.a", "1")

    options = Mine()
    assert calls_of(options) == [("add_session_config_entry", ("session.a", "1"))]
    with pytest.raises(TypeError):
        options.add_initializer("w")
    assert len(calls_of(options) or ()) == 1  # what was refused was not added
    gc.collect()
    count = len(recorded._calls)
    del options
    gc.collect()
    assert len(recorded._calls) == count - 1


def test_it_is_told_once_however_often_it_is_asked_to_look() -> None:
    for _ in range(2):
        recorded.note_options()
    options = ort.SessionOptions()
    options.add_session_config_entry("session.a", "1")
    assert len(calls_of(options) or ()) == 1
