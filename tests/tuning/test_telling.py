"""One place says what is told of an error."""

from __future__ import annotations

from opatlas.errors import LoadError
from tests.opatlas.test_errors import TRACE
from tuning.telling import told, told_log


def test_our_own_errors_say_themselves_what_is_wrong() -> None:
    error = LoadError("The kernel at /srv/opatlas/store/ab.so needs AVX-512.")
    assert told(error, "Exploration 7") == "The kernel at ab.so needs AVX-512."


def test_of_others_the_kind_and_where_it_is_logged() -> None:
    sentence = told(KeyError("/srv/opatlas/secret/place"), "Exploration 7")
    assert "KeyError" in sentence and "Exploration 7" in sentence and "secret" not in sentence
    assert sentence.endswith(".") and "\n" not in sentence


def test_logs_lose_tracebacks_and_places() -> None:
    said = told_log(TRACE + "\n/tmp/x/y/kernel.c:1: error")
    assert "Traceback" not in said and "File" not in said and "/" not in said
    assert said.startswith("building") and said.endswith("kernel.c:1: error")
