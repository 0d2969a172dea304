"""The backend ``opatlas`` of ``torch.compile``, found by its entry point: nothing is imported by hand."""

from __future__ import annotations

import dataclasses
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from opatlas.client.client import Client
from opatlas.cores import usable_cores
from opatlas.dynamo.aten import SIZES_CHANGE, AtenGraph, LeftToPyTorch
from opatlas.dynamo.contest import KINDS, LABELS, ChosenWay, Contest
from opatlas.dynamo.effects import Effects, effects_of, other_ranks
from opatlas.dynamo.held import HeldGraph
from opatlas.dynamo.inductor import compiled
from opatlas.dynamo.limits import compilers_end
from opatlas.dynamo.options import BackendOptions
from opatlas.dynamo.report import GraphReport, TorchReport
from opatlas.dynamo.sharing import AsShared
from opatlas.dynamo.weights import inputs_of_graph
from opatlas.errors import CallerError, OpatlasError, first_line
from opatlas.identity.place.setting import Setting, default_setting

log = logging.getLogger("opatlas")
TRIED = ("2.13",)
"""Versions of PyTorch that the tests were run with: the backend uses calls below its public surface."""
ASK_S = 240.0
"""Between two questions for what runs: a service tells of what it revoked to those that ask."""

_report = TorchReport()
_numbers = itertools.count(1)
_clients: dict[tuple[int, bool], Client] = {}
_told: set[str] = set()
_lock = threading.Lock()


def opatlas(
    module: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """What runs a graph that Dynamo found. Raises :class:`opatlas.errors.CallerError` for options that are
    none, and for a version of PyTorch that was not tried."""
    check_version()
    wanted = BackendOptions.read(options)
    start = time.perf_counter()
    row = GraphReport(f"graph {next(_numbers)}")
    run = _way(module, example_inputs, wanted, row)
    row.compile_s = time.perf_counter() - start
    for report in filter(None, (_report, wanted.report)):
        report.graphs.append(row)
    log.info("%s", row)
    return run


def check_version() -> None:
    """Raises :class:`opatlas.errors.CallerError`."""
    version = str(torch.__version__)
    if ".".join(version.split(".")[:2]) not in TRIED:
        raise CallerError(
            f"PyTorch {version} was not tried with this version of Opatlas; {' and '.join(TRIED)} was. "
            'Take torch.compile(model) without backend="opatlas".'
        )


def torch_report() -> TorchReport:
    """What became of all graphs of this process, as far as they were compiled."""
    return TorchReport(list(_report.graphs), graph_breaks())


def graph_breaks() -> dict[str, int]:
    """Why Dynamo cut models into several graphs, with how often; of the whole process."""
    utils = sys.modules.get("torch._dynamo.utils")
    found: dict[str, int] = {}
    for reason, count in (utils.counters["graph_break"] if utils is not None else {}).items():
        said = str(reason).strip().split("\n")[0]
        found[said] = found.get(said, 0) + count
    return found


class RunningGraph:
    """A graph that kernels run in, until one of them is revoked."""

    def __init__(self, chosen: ChosenWay, client: Client, row: GraphReport) -> None:
        self._run, self._framework = chosen.winner.call, chosen.framework
        self._sites = list(chosen.winner.sites.values())
        self._packing = [site for site in self._sites if site.packs_weights]
        self._artifacts = {site.artifact for site in self._sites}
        self._client, self._row = client, row
        self._ask_at = time.monotonic() + ASK_S

    def __call__(self, *args: Any) -> Any:
        if self._sites and self._is_revoked():
            log.warning("%s goes on in PyTorch: one of its kernels was revoked.", self._row.name)
            self._run, self._sites = self._framework, []
            self._row.chosen, self._row.replaced = "PyTorch, after a kernel was revoked", 0
        if not self._packing:
            return self._run(*args)
        with inputs_of_graph(args):
            made = self._run(*args)
        self._row.packed = sum(site.packed for site in self._packing)
        return made

    def _is_revoked(self) -> bool:
        if time.monotonic() > self._ask_at:
            self._ask_at = time.monotonic() + ASK_S
            self._client.refresh(list({site.operator.key for site in self._sites}))
        return not self._artifacts.isdisjoint(self._client.revoked)


def _way(
    module: fx.GraphModule, inputs: Sequence[Any], options: BackendOptions, row: GraphReport
) -> Callable[..., Any]:
    """A graph that does more than compute runs in PyTorch eager, and never for trying."""
    ranks = other_ranks()
    effects = Effects(why=ranks) if ranks else effects_of(module, inputs)
    if effects.why:
        return _eager(module, row, effects.why)
    try:
        run = _chosen(module, inputs, effects, options, row)
    except LeftToPyTorch as why:
        run = _left(module, inputs, effects, options, row, str(why))
    except OpatlasError as error:
        run = _left(module, inputs, effects, options, row, first_line(error))
    if not effects.written or run == module.forward:
        return run
    return AsShared(run, module.forward, inputs, effects.written)


def _chosen(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    effects: Effects,
    options: BackendOptions,
    row: GraphReport,
) -> Callable[..., Any]:
    _check_graph(module, inputs)
    client, place = _client(options)
    try:
        aten = AtenGraph(module, inputs, effects.written)
        chosen = Contest(module, aten, client, place, options, row).hold()
        aten.inputs.clear()  # a graph that runs holds nobody's inputs
    except OpatlasError:
        raise
    except Exception as error:  # whatever goes wrong with a graph, the job goes on
        log.debug("No contest for %s", row.name, exc_info=True)
        raise LeftToPyTorch(f"it could not be taken apart: {first_line(error)}") from error
    if not chosen.winner.sites:
        return chosen.winner.call
    return RunningGraph(chosen, client, row)


def _check_graph(module: fx.GraphModule, inputs: Sequence[Any]) -> None:
    """Raises :class:`LeftToPyTorch` for what is not tried."""
    tensors = [one for one in inputs if isinstance(one, torch.Tensor)]
    if torch.is_grad_enabled() and any(one.requires_grad for one in tensors):
        raise LeftToPyTorch("gradients are wanted: for inference call it under torch.no_grad()")
    if not any(node.op.startswith("call_") for node in module.graph.nodes):
        raise LeftToPyTorch("it computes nothing")
    if any(isinstance(one, torch.SymInt | torch.SymFloat) for one in inputs):
        raise LeftToPyTorch(SIZES_CHANGE)
    if any(one.device.type != "cpu" for one in tensors):
        raise LeftToPyTorch("it is not on the CPU")


def _client(options: BackendOptions) -> tuple[Client, tuple[str, str]]:
    """Who asks, for as many threads as PyTorch has now (Dynamo compiles anew where that changes), and at most
    as many as there are cores: PyTorch also counts CPUs on which a control group's quota leaves no time."""
    threads = min(torch.get_num_threads(), usable_cores())
    client = options.client
    if client is None:
        with _lock:
            which = (threads, options.offline)
            client = _clients.get(which)
            if client is None:
                accepts = {"kinds": list(KINDS)}  # nothing else can take part
                client = Client(setting=Setting(threads=threads), offline=options.offline, accepts=accepts)
                _clients[which] = client
    setting = client.setting or default_setting(client.target)
    if setting.threads != threads:
        raise LeftToPyTorch(f"the client's setting has {setting.threads} threads, and PyTorch {threads}")
    return client, (client.target.key, setting.key)


def _left(
    module: fx.GraphModule,
    inputs: Sequence[Any],
    effects: Effects,
    options: BackendOptions,
    row: GraphReport,
    why: str,
) -> Callable[..., Any]:
    """By Inductor, as far as it does what PyTorch eager does on what it is first called with."""
    computes = any(node.op.startswith("call_") for node in module.graph.nodes)
    if "inductor" not in options.frameworks or not computes:
        return _eager(module, row, why)
    if torch.is_grad_enabled() and any(inputs[at].requires_grad for at in effects.written):
        return _eager(module, row, "it writes to tensors whose gradients are wanted")
    labels = (LABELS["inductor"], LABELS["eager"])
    try:
        # In this thread: what Inductor finds out of sizes and views is what Dynamo guards.
        with compilers_end(options.limit_s):
            call = compiled(module, inputs)
    except Exception as error:  # no C++ compiler, or what Inductor does not know
        row.left_out[labels[0]] = first_line(error)
        return _eager(module, row, why)
    row.why, row.chosen = why, labels[0]
    _tell_once(why)
    return HeldGraph(call, module.forward, inputs, effects.written, row, labels, options.limit_s)


def _eager(module: fx.GraphModule, row: GraphReport, why: str) -> Callable[..., Any]:
    row.why, row.chosen = why, LABELS["eager"]
    _tell_once(why)
    run: Callable[..., Any] = module.forward
    return run


def _tell_once(why: str) -> None:
    if why not in _told:
        _told.add(why)
        log.warning("A graph is left to PyTorch: %s.", why)


class Optimized:
    """A model that was compiled: called as the model is, without gradients. ``report`` says what became of
    its graphs."""

    def __init__(self, model: Callable[..., Any], options: Mapping[str, Any] | None) -> None:
        own = dict(options or {})
        self._own: TorchReport = own.setdefault("report", TorchReport())
        BackendOptions.read(own)
        self._before = graph_breaks()
        self._breaks: dict[str, int] = {}
        self._compiled = torch.compile(model, backend=opatlas, options=own)

    @property
    def report(self) -> TorchReport:
        return dataclasses.replace(self._own, breaks=dict(self._breaks))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return self._compiled(*args, **kwargs)

    def _first(self, example: Any) -> None:
        if isinstance(example, Mapping):
            self(**example)
        else:
            self(*(example if isinstance(example, tuple) else (example,)))
        now = graph_breaks()
        self._breaks = {
            why: count - self._before.get(why, 0)
            for why, count in now.items()
            if count > self._before.get(why, 0)
        }


def optimize(
    model: Callable[..., Any], example: Any, *, options: Mapping[str, Any] | None = None
) -> Optimized:
    """The model as a callable that runs by whatever is fastest here: compiled now, with ``example`` (a
    tensor, a tuple of arguments, or a mapping of keyword arguments). ``options`` are the backend's. Raises
    :class:`opatlas.errors.CallerError` as the backend does."""
    check_version()
    made = Optimized(model, options)
    made._first(example)
    return made
