"""One sentence, short, plain, to be shown or spoken."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.notifications.write import wording

MATMUL = "MatMul 512×512, 512×512 float32"


def test_a_summary_is_spelt_to_be_spoken():
    assert wording.spoken(MATMUL) == "MatMul 512 by 512, 512 by 512 float32"


def test_a_new_best_says_who_by_how_much_and_before_whom():
    said = wording.best_changed(
        "MatMul 512×512", route="halide", ratio=2.1, default="eager", before="tvm", gain=1.31
    )
    assert (
        said
        == "MatMul 512 by 512: halide is now fastest, 2.1 times the default (PyTorch eager) and 31 per cent "
        "faster than tvm."
    )


def test_a_first_best_and_a_worse_one_say_so():
    first = wording.best_changed(
        "MatMul 512×512", route="eager", ratio=1.0, default="eager", before="", gain=None
    )
    assert (
        first
        == "MatMul 512 by 512: eager is its first implementation, as fast as the default (PyTorch eager)."
    )
    worse = wording.best_changed(
        "MatMul 512×512", route="tvm", ratio=1.2, default="eager", before="halide", gain=0.5
    )
    assert worse.endswith(
        "tvm is now fastest, 1.2 times the default (PyTorch eager), 2.0 times slower than halide was."
    )


def test_hits_say_how_often():
    said = wording.hit("MatMul 512×512", route="halide", ratio=2.1, default="eager", job="train", count=1204)
    assert (
        said == "MatMul 512 by 512: served to job train 1,204 times by halide, 2.1 times the default "
        "(PyTorch eager)."
    )


def test_the_end_of_an_exploration_says_how_it_ended():
    assert "explored, tvm is fastest, 1.3 times the default (PyTorch eager)" in wording.explored(
        MATMUL, state="done", route="tvm", ratio=1.3, default="eager"
    )
    failed = wording.explored(
        MATMUL, state="dead", route="", ratio=None, default="", reason="the worker was lost 3 times"
    )
    assert failed.endswith("exploration failed: the worker was lost 3 times.")
    assert "not supported" in wording.explored(MATMUL, state="unsupported", route="", ratio=None, default="")


def test_a_withdrawal_says_what_serves_instead_and_why():
    said = wording.withdrawn(
        "MatMul 512×512",
        route="cpp",
        failed=False,
        reason="reads past its input",
        now="tvm",
        ratio=1.4,
        default="onnxruntime",
    )
    assert said == (
        "MatMul 512 by 512: cpp was withdrawn, now tvm, 1.4 times the default (ONNX Runtime). Reads past "
        "its input."
    )
    assert "nothing is served now" in wording.withdrawn(
        MATMUL, route="cpp", failed=True, reason="", now="", ratio=None, default=""
    )


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.2, "less than a second"), (1, "1 second"), (4.2, "4 seconds"), (130, "2 minutes"), (3600, "1 hour")],
)
def test_durations_are_written_out(seconds, said):
    assert wording.duration(seconds) == said


_TEXT = st.text(alphabet=string.printable + "×–<>&é\x00", max_size=400)
_RATIO = st.one_of(st.none(), st.floats(0.001, 1e6))


@given(_TEXT, _TEXT, _RATIO, _TEXT, st.integers(1, 10**9))
def test_no_input_makes_a_sentence_long_or_gives_it_markup(operator, route, ratio, other, count):
    sentences = [
        wording.hit(operator, route=route, ratio=ratio, default=other, job=other, count=count),
        wording.best_changed(operator, route=route, ratio=ratio, default=other, before=other, gain=ratio),
        wording.first_result(operator, route=route, ratio=ratio, default=other, after_s=count),
        wording.explored(operator, state="dead", route=route, ratio=ratio, default=other, reason=other),
        wording.withdrawn(
            operator, route=route, failed=True, reason=other, now=other, ratio=ratio, default=other
        ),
        wording.test(other),
    ]
    for sentence in sentences:
        assert 0 < len(sentence) <= wording.MOST_CHARACTERS
        assert not set(sentence) & set("<>\n\r\t\x00")


def test_a_subject_counts_what_a_digest_holds():
    assert wording.subject_of(["One."], "daily") == "One."
    assert wording.subject_of(["One.", "Two."], "daily") == "Opatlas: 2 messages today. One."
