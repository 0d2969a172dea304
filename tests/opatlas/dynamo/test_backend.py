"""``torch.compile(model, backend="opatlas")``: who runs the graphs, and what is said of it."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed

import opatlas
from opatlas.client import Client
from opatlas.dynamo import backend, contest
from opatlas.errors import CallerError
from opatlas.evidence import Ratios
from opatlas.load.c_abi import AddressedCall
from opatlas.load.kernel import KernelFailed
from opatlas.plan.line_up import TimedInTurns
from tests import by_day
from tests.opatlas.client.test_client import until
from tests.opatlas.dynamo.making import KnowsAll, Linear, X, compiled

SIZE = 1000
LONG = torch.linspace(-1.0, 1.0, SIZE)


class Adding(nn.Module):
    """Two additions that the catalogue's kernel does, and what it does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.0, 1.0, SIZE))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x + self.weight) + x


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 8, 3, groups=8, bias=False), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
            nn.Linear(8, 4), nn.Softmax(-1),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


IMAGE = torch.linspace(-1.0, 1.0, 2 * 3 * 64).reshape(2, 3, 8, 8)


# ---- what runs ------------------------------------------------------------------------------------------


def test_kernels_of_the_catalogue_run_where_they_are_faster(
    publish_add: Any, job: Any, kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from catalog.models import Miss

    quick, call = [], AddressedCall.__call__
    monkeypatch.setattr(AddressedCall, "__call__", lambda *given: quick.append(1) or call(*given))
    publish_add()
    model = Adding()
    run, report = compiled(model, job())
    with torch.no_grad():
        for x, calls in ((LONG, 2), (-LONG, 2), (torch.linspace(-3.0, 1.0, SIZE + 1)[1:], 0)):
            torch.testing.assert_close(run(x), model(x))  # from the first run, which compiles, on
            quick.clear()
            torch.testing.assert_close(run(x), model(x))
            assert len(quick) == calls, "what is not aligned is copied first"
    (graph,) = report.graphs
    assert (graph.nodes, graph.operators, graph.known, graph.replaced) == (3, 2, 1, 2), str(report)
    assert graph.chosen == "2 kernels in PyTorch eager" and not graph.remembered
    assert Miss.objects.filter(related=False).count() == 1  # the tanh is explored


def test_a_revoked_kernel_is_out_of_the_next_run(publish_add: Any, job: Any, kernels_win: None) -> None:
    from catalog.best import revoked
    from catalog.best.withdrawing import withdraw
    from catalog.models import Implementation

    published, client, model = publish_add(), job(), Adding()
    run, report = compiled(model, client)
    with torch.no_grad():
        run(LONG)
        withdraw(Implementation.objects.filter(pk=published.implementation.pk), "it was found to be wrong")
        revoked.forget()  # a process of the service knows it within a second
        client.refresh(list(client._memory.entries))
        until(lambda: bool(client.revoked))
        torch.testing.assert_close(run(LONG), model(LONG))
    assert report.graphs[0].replaced == 0 and "revoked" in report.graphs[0].chosen


@pytest.mark.parametrize("dtype", by_day.first(1, [torch.float32, torch.float16, torch.bfloat16]))
@pytest.mark.parametrize("freeze", [False, True])
def test_models_give_what_they_give(dtype: torch.dtype, freeze: bool, kernels_win: None) -> None:
    torch.manual_seed(0)
    model = Convolutions().eval().to(dtype)
    run, report = compiled(model, KnowsAll(), freeze=freeze)
    with torch.no_grad():
        expected = model(IMAGE.to(dtype))
        found = run(IMAGE.to(dtype))
    assert report.graphs[0].replaced >= 8 and not report.graphs[0].left_out, str(report)
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    assert bool(report.graphs[0].packed) == freeze


def test_attention_numbers_in_calls_and_outputs_that_are_views(kernels_win: None) -> None:
    def model(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        heads = x.view(2, 2, 4, 4)
        y = nn.functional.scaled_dot_product_attention(heads, heads, heads)
        whole = (x * 8).to(torch.int32)
        turned = torch.relu(heads.contiguous(memory_format=torch.channels_last))
        return y, x * 2, whole * 2, torch.where(x > 0, x, x.flip(0)), x.view(-1), whole > 0, turned

    x = torch.randn(4, 16)
    for freeze in (False, True):
        torch._dynamo.reset()
        run, report = compiled(model, KnowsAll(), freeze=freeze)
        with torch.no_grad():
            for found, expected in zip(run(x), model(x), strict=True):
                assert found.stride() == expected.stride()
                torch.testing.assert_close(found, expected)
            assert run(x)[4].data_ptr() == x.data_ptr()
        assert report.replaced >= 6 and report.graphs[0].packed == 0, str(report)


def test_autocast_inside_and_outside_of_what_is_compiled(kernels_win: None) -> None:
    class Casting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(16, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.inner(x)

    model, inner = Casting(), Linear()
    with torch.no_grad():
        run, report = compiled(model, KnowsAll())
        assert run(X).dtype == torch.bfloat16 and report.replaced > 0
        torch.testing.assert_close(run(X), model(X))
        run, report = compiled(inner, KnowsAll())
        assert run(X).dtype == torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert run(X).dtype == torch.bfloat16
            torch.testing.assert_close(run(X), inner(X))
        assert run(X).dtype == torch.float32 and len(report.graphs) == 2


def test_inference_mode_and_weights_made_in_it(kernels_win: None) -> None:
    for freeze in (False, True):
        with torch.inference_mode():
            model = Linear()
            run, report = compiled(model, KnowsAll(), freeze=freeze)
            torch.testing.assert_close(run(X), model(X))
            model.inner.weight.add_(1.0)
            torch.testing.assert_close(run(X), model(X))
        assert report.replaced == 2


def test_what_a_graph_writes_is_written_once_a_call(kernels_win: None) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.count += x
            return self.count * 2

    model = Counting()
    run, report = compiled(model, KnowsAll())
    with torch.no_grad():
        for expected in (1.0, 2.0, 3.0):
            torch.testing.assert_close(run(torch.ones(4)), torch.full((4,), 2 * expected))
    assert model.count.tolist() == [3.0] * 4 and report.replaced >= 1


def test_inductor_compiles_around_kernels_and_packed_weights_are_still_noticed(
    kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config

    model = Linear()
    only = KnowsAll(only=lambda operator: operator.op_types != ("Relu",))
    run, report = compiled(model, only, freeze=True, frameworks=("inductor",))
    # One compilation is enough, and none needs a fast result.
    monkeypatch.setattr(contest, "compiled", lambda module, inputs: module.forward)
    quick = {
        "cpp.simdlen": 1,
        "cpp.vec_isa_ok": True,
        "cpp_cache_precompile_headers": False,
        "compile_threads": 1,
    }
    with torch.no_grad(), config.patch(quick):
        torch.testing.assert_close(run(X), model(X))
        assert report.graphs[0].chosen == "1 kernels in torch.compile", str(report)
        model.inner.weight.add_(1.0)  # which Inductor reads through a view without a version
        torch.testing.assert_close(run(X), model(X))
    assert report.graphs[0].packed == 2


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]


def test_without_kernels_the_faster_of_pytorchs_own_runs(
    kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []

    def instead(module: Any, inputs: Any) -> Any:
        return lambda *args: called.append("inductor") or module.forward(*args)

    monkeypatch.setattr(contest, "compiled", instead)
    nothing = KnowsAll(only=lambda operator: False)
    for own, chosen in ((("eager", "inductor"), "torch.compile"), (("inductor", "eager"), "PyTorch eager")):
        torch._dynamo.reset()
        run, report = compiled(Linear(), nothing, frameworks=own)  # the second one is faster here
        with torch.no_grad():
            run(X)
            called.clear()
            run(X)
        assert called == ["inductor"] * (chosen == "torch.compile")
        assert [report.graphs[0].chosen, report.replaced] == [chosen, 0]
        assert [one.said for one in report.graphs[0].frameworks] == [contest.LABELS[one] for one in own]
        assert not report.graphs[0].standings


# ---- what is left to PyTorch ----------------------------------------------------------------------------


def test_training_is_pytorchs_and_said_once(kernels_win: None, caplog: pytest.LogCaptureFixture) -> None:
    model = Linear()
    for _ in range(2):
        run, report = compiled(model, KnowsAll())
        torch._dynamo.reset()
        run(X).sum().backward()
        assert model.inner.weight.grad is not None and report.replaced == 0
        assert report.graphs[0].why.startswith("gradients are wanted")
        model.zero_grad()
    assert [one for one in warnings_in(caplog) if "gradients are wanted" in one] == [
        "A graph is left to PyTorch: gradients are wanted: for inference call it under torch.no_grad()."
    ]


def test_sizes_that_change_are_right_and_pytorchs(kernels_win: None) -> None:
    model = Linear()
    run, report = compiled(model, KnowsAll())
    with torch.no_grad():
        for rows in (4, 5, 6, 4):
            x = torch.randn(rows, 16)
            torch.testing.assert_close(run(x), model(x))
    assert [bool(graph.why) for graph in report.graphs] == [False, True]
    assert "sizes change" in report.graphs[1].why


def test_sizes_that_depend_on_values_are_right_and_pytorchs(kernels_win: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x[x > 0]) * 2

    run, report = compiled(model, KnowsAll())
    with torch.no_grad(), torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        for x in (X, -X, X.abs()):
            torch.testing.assert_close(run(x), model(x))
    assert "sizes change" in report.graphs[0].why and report.replaced == 0


def test_random_numbers_stay_random(kernels_win: None) -> None:
    run, report = compiled(nn.Sequential(nn.Linear(16, 64), nn.Dropout()).train(), KnowsAll())
    with torch.no_grad():
        assert not torch.equal(run(X), run(X))
    assert "random numbers" in report.graphs[0].why and report.replaced == 0


def test_another_number_of_threads_is_another_graph(kernels_win: None) -> None:
    model = Linear()
    run, report = compiled(model, KnowsAll())
    with torch.no_grad():
        run(X)
        torch.set_num_threads(2)
        torch.testing.assert_close(run(X), model(X))
    assert [graph.replaced for graph in report.graphs] == [2, 0]
    assert "1 threads, and PyTorch 2" in report.graphs[1].why


def test_without_a_server_it_is_pytorch_and_said_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Any
) -> None:
    model = Linear()
    with Client(
        "http://127.0.0.1:9", "key", setting=backend.Setting(threads=1), cache=tmp_path, sidecar=False
    ) as client:
        for _ in range(2):
            run, report = compiled(model, client)
            torch._dynamo.reset()
            with torch.no_grad():
                torch.testing.assert_close(run(X), model(X))
            assert report.graphs[0].chosen == "PyTorch eager" and not report.graphs[0].why
    assert len([one for one in warnings_in(caplog) if "run as they would without Opatlas" in one]) == 1


# ---- kernels that fail or lie ---------------------------------------------------------------------------


class Lying:
    """A kernel of ``relu`` that is wrong, or fails later."""

    binds_outputs = True

    def __init__(self, fails_at: int) -> None:
        self.left = fails_at

    def bind(self, inputs: Any, outputs: Any = None) -> Any:
        def run() -> None:
            self.left -= 1
            if self.left == 0:
                raise KernelFailed("once too often")
            outputs[0][...] = inputs[0].clip(0) + (self.left < 0)

        return run

    def close(self) -> None:
        pass


def relu_only(operator: Any) -> bool:
    return operator.op_types == ("Relu",)


def test_a_kernel_that_gives_other_values_takes_no_part(kernels_win: None) -> None:
    model = Linear()
    client = KnowsAll(only=relu_only, kernels={relu_key(): Lying(-1)})
    run, report = compiled(model, client)
    with torch.no_grad():
        torch.testing.assert_close(run(X), model(X))
    assert report.known == 1 and report.replaced == 0
    assert report.graphs[0].left_out == {"aten.relu.default": "it makes other values than PyTorch"}


def test_a_kernel_that_fails_gives_way_to_pytorch(
    kernels_win: None, caplog: pytest.LogCaptureFixture
) -> None:
    model = Linear()
    client = KnowsAll(only=relu_only, kernels={relu_key(): Lying(5)})
    run, report = compiled(model, client)
    with torch.no_grad():
        for _ in range(6):
            torch.testing.assert_close(run(X), model(X))
    assert report.replaced == 1 and any("once too often" in one for one in warnings_in(caplog))


def relu_key() -> str:
    from opatlas.graph.aten import CallRecord, TensorArgument, map_aten
    from opatlas.identity import canonicalise

    mapped = map_aten(CallRecord("aten.relu.default", (TensorArgument("float32", (4, 8)),)))
    return canonicalise(mapped.model).operator.key


# ---- what is kept and said ------------------------------------------------------------------------------


def test_what_was_chosen_is_remembered_by_the_machine(
    kernels_win: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    model = Linear()
    with torch.no_grad():
        first = compiled(model, KnowsAll(tmp_path))
        first[0](X)
        torch._dynamo.reset()
        monkeypatch.setattr(contest, "line_up", lambda runs, seconds: pytest.fail("it was timed again"))
        run, report = compiled(model, KnowsAll(tmp_path))
        torch.testing.assert_close(run(X), model(X))
    assert report.graphs[0].remembered and report.graphs[0].chosen == first[1].graphs[0].chosen
    assert report.replaced == 2 and "warm" in str(report) and "cold" in str(first[1])


@pytest.mark.parametrize(
    ("ratios", "kept"),
    [((2.0, 0.4, 9.0), False), ((0.5, 0.1, 3.0), False), ((2.0, 1.5, 9.0), True), ((1.1, 0.9, 1.2), True)],
)
def test_what_a_busy_host_left_undecided_between_frameworks_is_not_remembered(
    ratios: tuple[float, float, float], kept: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def standings(runs: Any, seconds: float) -> dict[str, TimedInTurns]:
        both = zip(runs, (Ratios(1.0, 1.0, 1.0), Ratios(*ratios)), strict=True)
        return {name: TimedInTurns(name, 10.0 / one.ratio, one) for name, one in both}

    monkeypatch.setattr(contest, "line_up", standings)
    monkeypatch.setattr(contest, "compiled", lambda module, inputs: module.forward)
    for remembered in (False, kept):
        torch._dynamo.reset()
        run, report = compiled(
            Linear(), KnowsAll(tmp_path, only=lambda one: False), frameworks=("eager", "inductor")
        )
        with torch.no_grad():
            run(X)
        assert report.graphs[0].remembered == remembered


def test_graph_breaks_are_counted_and_named(kernels_win: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x)
        torch._dynamo.graph_break()
        return torch.tanh(y)

    made = opatlas.optimize(model, X, options={"client": KnowsAll(), "frameworks": ("eager",)})
    torch.testing.assert_close(made(X), model(X))
    assert len(made.report.graphs) == 2 and made.report.replaced == 2
    ((reason, count),) = made.report.breaks.items()
    assert "graph_break" in reason and count == 1
    assert opatlas.torch_report().breaks[reason] >= 1
    assert all(graph in opatlas.torch_report().graphs for graph in made.report.graphs)


def test_two_models_in_one_process_and_several_threads(kernels_win: None) -> None:
    wanted = {"client": KnowsAll(), "frameworks": ("eager",), "freeze": True}
    models = [Linear(), Convolutions().eval()]
    inputs = [X, IMAGE]
    made = [
        opatlas.optimize(model, {"x": x}, options=wanted) for model, x in zip(models, inputs, strict=True)
    ]
    with torch.no_grad():
        expected = [model(x) for model, x in zip(models, inputs, strict=True)]
    wrong: list[Any] = []

    def work(at: int) -> None:
        torch.set_num_threads(1)  # a thread has its own number
        for _ in range(20):
            if not torch.allclose(made[at](inputs[at]), expected[at], atol=1e-6):
                wrong.append(at)

    threads = [threading.Thread(target=work, args=(at % 2,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all(one.report.replaced >= 2 for one in made)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"fast": 1}, "no option 'fast'; there are wait_s"),
        ({"wait_s": "long"}, "'wait_s' is a number of seconds"),
        ({"freeze": 1}, "'freeze' is True or False"),
        ({"frameworks": ["jax"]}, "'frameworks' names some of eager, inductor"),
        ({"client": 3}, "'client' is a Client"),
    ],
)
def test_options_that_are_none(options: Any, sentence: str) -> None:
    with pytest.raises(CallerError, match=sentence):
        opatlas.optimize(Linear(), X, options=options)


def test_clients_are_made_for_threads_and_asked_as_options_say(
    kernels_win: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[Any, KnowsAll]] = []

    def make(**given: Any) -> KnowsAll:
        made.append((given, KnowsAll()))
        return made[-1][1]

    monkeypatch.setattr(backend, "Client", make)
    monkeypatch.setattr(backend, "_clients", {})
    for offline in (False, True, True):
        torch._dynamo.reset()
        options = {"wait_s": 2.5, "offline": offline, "frameworks": ("eager",)}
        assert opatlas.optimize(Linear(), X, options=options).report.replaced == 2
    assert [given["offline"] for given, _ in made] == [False, True]
    assert all(given["setting"].threads == 1 for given, _ in made)
    assert all(given["accepts"] == {"kinds": ["c-abi"]} for given, _ in made)  # no library's call takes part
    assert [client.waited for _, client in made] == [[2.5], [2.5, 2.5]]


def test_what_a_graph_was_compiled_with_is_let_go(kernels_win: None) -> None:
    run, report = compiled(Linear(), KnowsAll())
    x = torch.randn(4, 16)
    held = weakref.ref(x)
    with torch.no_grad():
        run(x)
    del x
    gc.collect()
    assert report.replaced == 2 and held() is None


def test_other_versions_of_pytorch_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend.torch, "__version__", "9.1.0+cpu")
    with pytest.raises(CallerError, match=r"PyTorch 9.1.0\+cpu was not tried .*; 2.13 was"):
        opatlas.optimize(Linear(), X)
    with pytest.raises(BackendCompilerFailed, match="was not tried"), torch.no_grad():
        compiled(Linear(), KnowsAll())[0](X)
