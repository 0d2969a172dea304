"""The command ``opatlas``, as people and scripts call it."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from typer.testing import CliRunner

from opatlas.cli import commands
from opatlas.client.service.login import config_path, read_login
from opatlas.errors import CallerError, InvalidModel
from opatlas.graph.profile import ModelProfile
from opatlas.identity import detect_target
from opatlas.load.signing import public_bytes, read_key
from opatlas.plan.said import WHOLE
from opatlas.session import forms
from tests.opatlas.load.kernels import add_operator
from tests.opatlas.session.test_session import adding, counted
from tests.tuning.graph.layout.test_model import AT, DATA, GRAPH, feed


@pytest.fixture
def command(configure, tmp_path):
    """``command("lookup", "Relu", "7")``: its exit code and what it printed."""
    configure(cache=tmp_path / "cache", config=tmp_path / "config")

    def run(*words, code=0, **options):
        done = CliRunner().invoke(commands.app, list(map(str, words)), **options)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def at_service(command, configure, live_server, make_key, publish_add):
    """The same with a service that knows an addition (on one thread)."""
    configure(url=live_server.url, key=make_key("lookup", "admin"))
    publish_add()
    return command


def operators(path: Path, *sizes: int) -> Path:
    path.write_text("\n".join(json.dumps(add_operator(size).to_json()) for size in sizes))
    return path


def test_what_this_machine_is(command):
    told = json.loads(command("target", "--json"))
    assert told["key"] == detect_target().key and told["target"]["cores"] == detect_target().cores
    assert detect_target().arch in command("target")


def test_an_empty_answer_says_why_and_fails(at_service):
    told = at_service("lookup", "Relu", "7", code=1)
    assert "empty" in told and "waiting" in told
    told = json.loads(at_service("lookup", "Relu", "7", "--json", code=1))
    assert (told["status"], told["state"]) == ("miss", "waiting")


def test_a_hit_is_told_in_words_and_as_json(at_service, monkeypatch):
    from opatlas.client import Client
    from opatlas.identity import Setting

    def with_one_thread(offline=False, **options):
        return Client(offline=offline, strict=not offline, setting=Setting(threads=1), **options)

    monkeypatch.setattr(commands, "_client", with_one_thread)
    told = at_service("lookup", "Add", "1000", "1000")
    assert "cpp: add (manual)" in told and "10.0 µs; the default took 20.0 µs" in told
    assert "2.00× the default (1.98 to 2.02)" in told and "signed by the key " in told
    told = json.loads(at_service("lookup", add_operator().key, "--offline", "--json"))
    assert told["source"] == "cache" and told["best"]["ratio_to_default"] == 2.0


def test_another_setting_is_asked_for_as_the_operators_page_says_it(at_service):
    told = json.loads(at_service("lookup", add_operator().key, "--setting", '{"threads": 1}', "--json"))
    assert told["status"] == "hit"


def test_why_there_is_no_answer(at_service, publish_add):
    told = at_service("explain", "Add", "1000", "1000")
    assert "unknown" in told and "setting.threads: 1 (asked: " in told
    assert json.loads(at_service("explain", "Add", "1000", "1000", "--json"))["state"] == "unknown"


def test_operators_are_searched_in_any_writing(at_service):
    told = at_service("search", "add(1000)", "fp32")
    assert add_operator().key[:20] in told and "more: narrow" not in told
    found = json.loads(at_service("search", "add", "1000", "--json"))
    assert [one["key"] for one in found["results"]] == [add_operator().key] and found["count"] == 1
    assert "knows no such operator" in at_service("search", "softmax 7x7", code=1)
    with pytest.raises(CallerError, match=r"There is no route “tvmm”: did you mean tvm\?"):
        at_service("search", "add", "route:tvmm")


def test_many_at_once(at_service, tmp_path):
    told = json.loads(at_service("prefetch", operators(tmp_path / "operators.jsonl", 5, 6, 7), "--json"))
    assert told == {"operators": 3, "hits": 0, "misses": 3, "requests": 1}


def test_a_models_operators_are_brought_by_its_file(at_service, tmp_path):
    model = tmp_path / "model.onnx"
    model.write_bytes(adding())
    told = json.loads(at_service("prefetch", model, "--json"))
    assert (told["operators"], told["requests"]) == (2, 1)
    assert json.loads(at_service("cache", "stats", "--json"))["entries"] == 2
    model.write_bytes(b"no model")
    with pytest.raises(InvalidModel):
        at_service("prefetch", model)


def test_the_cache_is_counted_and_emptied(at_service, tmp_path):
    at_service("prefetch", operators(tmp_path / "operators.jsonl", 5, 6))
    told = json.loads(at_service("cache", "stats", "--json"))
    assert told["entries"] == 2 and told["folder"] == str(tmp_path / "cache")
    assert str(tmp_path / "cache") in "".join(at_service("cache", "stats").split())
    assert "is empty" in at_service("cache", "clear")
    assert json.loads(at_service("cache", "stats", "--json"))["entries"] == 0


def test_a_snapshot_goes_out_and_comes_in(at_service, tmp_path, monkeypatch):
    from opatlas.client import Client
    from opatlas.identity import Setting

    def with_one_thread(offline=False, **options):
        return Client(offline=offline, setting=Setting(threads=1), **options)

    monkeypatch.setattr(commands, "_client", with_one_thread)
    listed, to, key = (tmp_path / name for name in ("operators.jsonl", "job.opatlas", "key.pem"))
    told = at_service("cache", "export", operators(listed, 1000), to, "--signing-key", key)
    public = public_bytes(read_key(key)).hex()
    assert "1 operators" in told and public in told
    at_service("cache", "clear")
    assert "1 operators" in at_service("cache", "import", to, "--public-key", public)
    assert list((tmp_path / "cache").rglob("kernel.so"))
    told = json.loads(at_service("cache", "export", listed, to, "--signing-key", key, "--json"))
    assert told == {"snapshot": str(to), "operators": 1, "public_key": public}
    assert json.loads(at_service("cache", "clear", "--json")) == {"folder": str(tmp_path / "cache")}
    told = json.loads(at_service("cache", "import", to, "--public-key", public, "--json"))
    assert told == {"snapshot": str(to), "operators": 1}
    assert list((tmp_path / "cache").rglob("kernel.so"))


def test_a_login_is_tried_and_kept_for_this_user_alone(command, live_server, make_key):
    key = make_key("lookup")
    told = command("login", input=f"{live_server.url}\n{key}\n")
    assert key not in told and str(config_path()) in "".join(told.split())
    assert read_login() == (live_server.url, key)
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
    told = json.loads(command("login", "--url", live_server.url, "--key", key, "--json"))
    assert told == {"config": str(config_path()), "url": live_server.url}
    assert "waiting" in command("lookup", "Relu", "7", code=1)
    with pytest.raises(CallerError, match="key"):
        command("login", "--url", live_server.url, "--key", "opk_wrong")
    assert read_login() == (live_server.url, key), "what worked stays"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("lookup", "Relu"), "Name the inputs"),
        (("lookup", "Relu", "7*7"), "looks like 64x256"),
        (("lookup", "Gemm", "8x8", "8x8", "--attr", "alpha"), "looks like transB=1"),
        (("lookup", "nothing.onnx"), "There is no file"),
        (("lookup", "Relu", "7", "--setting", "one"), "--setting is no JSON"),
        (("lookup", "Relu", "7", "--setting", '{"threads": 0}'), "thread"),
        (("cache", "import", "x", "--public-key", "me"), "64 hexadecimal digits"),
    ],
)
def test_what_is_wrong_is_one_sentence(command, words, sentence):
    with pytest.raises(CallerError, match=sentence):
        command(*words)


def test_shapes_dtypes_weights_and_attributes():
    assert commands._asked(
        "Gemm", ["64x32", "32x8:float16*", "-", "scalar"], ["alpha=0.5", "pads=[1,1]"]
    ) == (
        "Gemm",
        [((64, 32), "float32"), ((32, 8), "float16"), None, ((), "float32")],
        {"const": [1], "alpha": 0.5, "pads": [1, 1]},
    )


def test_as_a_process_an_error_is_one_line_on_stderr(tmp_path):
    environment = os.environ | {"OPATLAS_URL": "http://127.0.0.1:9", "OPATLAS_CACHE": str(tmp_path)}
    environment["OPATLAS_KEY"] = "key"
    command = [str(Path(sys.executable).with_name("opatlas")), "lookup", "Relu", "7"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("The service cannot be reached") and done.stderr.count("\n") == 1
    # Which shell's it shows is told by who called.
    called = ["bash", "-c", f"{shlex.quote(command[0])} --show-completion; true"]
    shown = subprocess.run(called, capture_output=True, text=True, env=environment)
    assert "complete" in shown.stdout + shown.stderr


def test_a_model_is_run_and_compared(at_service, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(adding())
    told = json.loads(at_service("run", path, "--threads", 1, "--try-s", 0.1, "--compare", "--json"))
    assert (told["nodes"], told["known"]) == (3, 1)
    assert {one["said"] for one in told["standings"]} == {"ONNX Runtime", "Opatlas"}
    assert sum(row["us"] for row in told["steps"]) > 0
    np.savez(tmp_path / "inputs.npz", x=np.ones(1000, np.float32), y=np.ones(1000, np.float32))
    said = at_service("run", path, "--threads", 1, "--inputs", tmp_path / "inputs.npz")
    assert "3 nodes; kernels are known for 1 operators" in said and "ONNX Runtime's µs" in said
    assert "It runs by" in said


def test_real_runs_of_a_model_show_how_often_its_branches_and_loops_run(command, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(DATA)
    for name, given in (
        ("dark", feed(False, 5)),
        ("bright", feed(True, 2)),
        ("short", {"x": feed(True, 1)["x"]}),
    ):
        np.savez(tmp_path / f"{name}.npz", **given)
    words = ("profile", path, "--inputs", tmp_path / "dark.npz", "--inputs", tmp_path / "bright.npz")
    found = ModelProfile.from_json(json.loads(command(*words, "--version", "of March")))
    assert (found.model, found.version, found.runs) == (GRAPH.key, "of March", 2)
    assert [found.of(AT[one]).count for one in ("choice", "dark_conv", "step_conv")] == [2, 1, 7]
    with pytest.raises(CallerError, match="has no input 'trips' of the model"):
        command("profile", path, "--inputs", tmp_path / "short.npz")


def test_a_model_is_run_by_a_plan_of_the_service_and_its_timeline_is_sent(
    at_service, tmp_path, uploads_at_once, monkeypatch
):
    from catalog.models import PlanTimeline
    from tuning.timelines import kept_timeline

    monkeypatch.setattr(
        forms, "profile_in_place", counted
    )  # its kernels are slower than ONNX Runtime in place
    path, trace = tmp_path / "model.onnx", tmp_path / "trace.json"
    path.write_bytes(adding())
    words = ("run", path, "--plan", "--threads", 1, "--try-s", 0.1, "--framework", "none")
    told = json.loads(at_service(*words, "--json"))
    assert told["known"] == 1 and "plan" not in told
    standings = [one["said"] for one in told["standings"]]
    assert standings[:2] == [WHOLE, "2 of 3 steps by kernels"]
    assert all("inside ONNX Runtime" in one for one in standings[2:])  # those that pay where they stand
    assert not PlanTimeline.objects.exists()
    said = at_service(*words, "--trace", trace)
    [kept] = PlanTimeline.objects.all()
    assert f"The service is told how a run by its plan {kept.plan_id} went." in said
    assert [one.by for one in kept_timeline(kept).boxes] == ["cpp add", "onnxruntime", "cpp add"]
    assert json.loads(trace.read_text())["traceEvents"]  # of what runs, which on a busy host may be another


def test_a_model_that_no_plan_takes_is_run_by_onnx_runtime(command, tmp_path):
    (tmp_path / "model.onnx").write_bytes(adding())
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "model.ort")  # a format that only ONNX Runtime reads
    ort.InferenceSession(tmp_path / "model.onnx", options)
    named = {one.name: one.shape for one in ort.InferenceSession(tmp_path / "model.ort").get_inputs()}
    np.savez(tmp_path / "in.npz", **{name: np.ones(shape, np.float32) for name, shape in named.items()})
    words = ["run", tmp_path / "model.ort", "--inputs", tmp_path / "in.npz", "--offline"]
    told = json.loads(command(*words, "--json"))
    assert told["nodes"] is None and list(told["refused"]) == ["opatlas"]
    assert [row["by"] for row in told["steps"]] == [told["runs_by"]] == ["ONNX Runtime, the whole model"]
    assert "? nodes" in command(*words) and "opatlas takes no part" in command(*words)


def test_a_model_that_cannot_be_run_says_why(command, tmp_path):
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    (tmp_path / "model.onnx").write_bytes(adding())
    (tmp_path / "wrong.npz").write_bytes(b"nothing")
    for words, sentence in (
        (["none.onnx"], "There is no file none.onnx"),
        ([tmp_path / "broken.onnx"], "ONNX Runtime refuses it: .*parsing failed"),
        ([tmp_path / "model.onnx", "--inputs", tmp_path / "wrong.npz"], "has no arrays by name"),
    ):
        with pytest.raises(CallerError, match=sentence):
            command("run", *words, "--offline")
