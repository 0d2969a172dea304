"""``opatlas run``: one model by what is fastest here, or several that share engines."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opatlas.cli.terminal import attribute, client, console, print_json, table
from opatlas.cores import usable_cores
from opatlas.errors import CallerError, OpatlasError, first_line

if TYPE_CHECKING:
    from opatlas.session import Session
    from opatlas.session.several import SharedRuns
    from opatlas.streams.timeline import Timeline

MOST_ROWS = 20
"""Of a table of steps, those that take longest."""
SECONDS = 5.0
"""Of runs of several models, unless told otherwise."""


def run(
    models: Annotated[list[Path], typer.Argument(help="An ONNX model; several share engines.")],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            help="Inputs by name (.npz), of several models detector=frames.npz; random ones unless given."
        ),
    ] = None,
    dim: Annotated[list[str] | None, typer.Option(help="A symbolic dimension's size: batch=1.")] = None,
    threads: Annotated[
        int | None, typer.Option(help="All cores unless given; of several models those of one engine.")
    ] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Time it beside ONNX Runtime.")] = False,
    try_s: Annotated[float, typer.Option(help="Seconds for trying plans, once for a model.")] = 5.0,
    framework: Annotated[
        list[str] | None,
        typer.Option(help="Try it beside ONNX Runtime: openvino, pytorch, xla, torch.compile; or none."),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Ask the service for a plan, of the model in simpler form.")
    ] = False,
    engines: Annotated[
        int | None, typer.Option(help="Of several models: engines that they share; one each unless given.")
    ] = None,
    priority: Annotated[
        list[str] | None, typer.Option(help="Of several models: a head start in seconds: detector=0.01.")
    ] = None,
    deadline: Annotated[
        list[str] | None, typer.Option(help="Of several models: by when a run must end: detector=0.05.")
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Of several models: for their runs, half of them alone.")
    ] = SECONDS,
    trace: Annotated[
        Path | None,
        typer.Option(
            help="Write a timeline there, in Chrome's trace event format; with --plan the service is told "
            "how a run by its plan went."
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="Ask nobody.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a model by what is fastest here, and say where its time goes; or several, in turns."""
    from opatlas.graph.given_model import read_inputs
    from opatlas.identity import Setting
    from opatlas.plan.plan import KERNEL_KINDS

    for one in models:
        if not one.exists():
            raise CallerError(f"There is no file {one}.")
    if trace is not None and not trace.absolute().parent.is_dir():
        raise CallerError(f"There is no folder {trace.absolute().parent} for the timeline.")
    given = inputs or []
    several = _Several(
        models, engines, threads, priority or [], deadline or [], seconds, given if len(models) > 1 else []
    )
    if len(models) == 1:
        several.refuse_for_one()
        if len(given) > 1:
            raise CallerError(f"One model takes its inputs from one file, not {len(given)}.")
    elif compare:
        raise CallerError("--compare is of one model.")
    threads = threads if len(models) == 1 else several.threads
    setting = Setting(threads=threads) if threads is not None else None
    accepts = {"kinds": list(KERNEL_KINDS)}  # nothing else can take part in a model
    options: dict[str, Any] = {
        "dims": {name: int(size) for name, size in map(attribute, dim or ())},
        "try_s": try_s,
        "frameworks": [one for one in framework if one != "none"] if framework else None,
        "plan": plan or None,
    }
    if given and len(models) == 1:
        options["example"] = read_inputs(Path(given[0]))
    with client(offline, setting=setting, accepts=accepts) as asked, ExitStack() as opened:
        with console(stderr=True).status("Looking operators up, trying frameworks and plans"):
            from opatlas.session import Session

            with _in_words():
                sessions = [opened.enter_context(Session(one, client=asked, **options)) for one in models]
        if len(models) > 1:
            told = several.run(sessions, trace)
        else:
            told = _run_one(sessions[0], options.get("example"), compare, try_s, trace)
    if as_json:
        print_json(told)
    elif len(models) > 1:
        _print_several(told)
    else:
        _print_run(told)


def _run_one(
    session: Session, inputs: Mapping[str, Any] | None, compare: bool, try_s: float, trace: Path | None
) -> dict[str, Any]:
    from opatlas.plan.said import said_of
    from opatlas.session import compared

    feed = inputs if inputs is not None else session.example()
    with _in_words():
        session.run(None, feed)
    with console(stderr=True).status("Timing"):
        rows = session.breakdown(feed)
        standings = compared(session, feed, try_s) if compare else session.standings
    if trace is not None:
        _write_trace(trace, session.timeline(feed))
    plan = _told_of_plan(session, feed) if trace is not None and session.plan_number is not None else None
    return {
        "nodes": _node_count(session),
        "known": session.known,
        "kernels": len(session.plan.kernels),
        "steps": [asdict(row) for row in rows],
        "standings": [asdict(one) for one in standings],
        "runs_by": said_of(session.plan),
        "refused": dict(session.refused),
        **({"trace": str(trace)} if trace is not None else {}),
        **({"plan": plan} if plan is not None else {}),
    }


@contextmanager
def _in_words() -> Iterator[None]:
    """What ONNX Runtime raises, whose exceptions have no base class of their own, as a sentence."""
    try:
        yield
    except OpatlasError:
        raise
    except Exception as error:
        raise CallerError(f"ONNX Runtime refuses it: {first_line(error)}") from error


def _node_count(session: Session) -> int | None:
    """None for a model that ONNX Runtime alone can read."""
    try:
        return len(session.graph.nodes)
    except CallerError:
        return None


def _told_of_plan(session: Session, feed: Mapping[str, Any]) -> dict[str, Any]:
    """``not_told``: why the service was not told of a run by its plan."""
    try:
        session.report_timeline(feed)
    except OpatlasError as error:
        return {"number": session.plan_number, "not_told": str(error)}
    return {"number": session.plan_number, "not_told": ""}


class _Several:
    """What was asked for several models. Raises :class:`CallerError` for what cannot be."""

    def __init__(
        self,
        models: Sequence[Path],
        engines: int | None,
        threads: int | None,
        priority: Sequence[str],
        deadline: Sequence[str],
        seconds: float,
        inputs: Sequence[str],
    ) -> None:
        from opatlas.graph.given_model import read_inputs
        from opatlas.session.several import inputs_by_model, names_of, seconds_by_model

        self.asked = engines is not None or bool(priority) or bool(deadline) or seconds != SECONDS
        cores = usable_cores()
        self.count = engines if engines is not None else min(len(models), cores)
        self.threads = threads if threads is not None else max(1, cores // max(1, self.count))
        self.names = names_of(models)
        self.priorities = seconds_by_model(priority, self.names, "priority")
        self.deadlines = seconds_by_model(deadline, self.names, "deadline")
        self.feeds = {name: read_inputs(path) for name, path in inputs_by_model(inputs, self.names).items()}
        if not (math.isfinite(seconds) and seconds > 0):
            raise CallerError(f"--seconds must be above zero, not {seconds:g}.")
        self.seconds = seconds

    def refuse_for_one(self) -> None:
        if self.asked:
            raise CallerError(
                "--engines, --priority, --deadline and --seconds are of several models that share engines: "
                "name two or more."
            )

    def _feed(self, name: str, session: Session) -> Mapping[str, Any]:
        """What was given for a model, seen to fit by a run; or random ones."""
        if (feed := self.feeds.get(name)) is None:
            return session.example()
        try:
            with _in_words():
                session.run(None, feed)
        except CallerError as error:
            raise CallerError(f"{name} cannot run on its inputs: {error}") from error
        return feed

    def run(self, sessions: Sequence[Session], trace: Path | None) -> dict[str, Any]:
        from rich.progress import Progress

        from opatlas.plan.engines import Engines
        from opatlas.plan.said import said_of
        from opatlas.session.several import SharingModel, run_alone, run_together

        models = [
            SharingModel(
                name,
                one,
                self._feed(name, one),
                self.priorities.get(name, 0.0),
                self.deadlines.get(name, math.inf),
            )
            for name, one in zip(self.names, sessions, strict=True)
        ]
        engines = Engines(self.count, self.threads)
        began = time.monotonic()
        try:
            with Progress(console=console(stderr=True), transient=True) as progress:
                bars = {name: progress.add_task(name, total=self.seconds) for name in self.names}

                def told(name: str, runs: int) -> None:
                    said = f"{name}: {runs} runs"
                    progress.update(bars[name], completed=time.monotonic() - began, description=said)

                found = run_alone(models, engines, self.seconds / 2, told)
                since = time.monotonic()
                run_together(models, engines, self.seconds / 2, found, told)
            timeline = engines.timeline(since)
        finally:
            for one in sessions:
                one.share(None)
            engines.close()
        if trace is not None:
            _write_trace(trace, timeline)
        return {
            "engines": self.count,
            "threads": self.threads,
            "models": [
                _told(one, said_of(session.plan)) for one, session in zip(found, sessions, strict=True)
            ],
            "waits": [asdict(one) for one in timeline.row_waits],
            **({"trace": str(trace)} if trace is not None else {}),
        }


def _told(one: SharedRuns, runs_by: str) -> dict[str, Any]:
    return {
        "model": one.model,
        "runs": one.runs,
        "median_us": one.median_us,
        "p95_us": one.p95_us,
        "deadlines_passed": one.passed,
        "alone_us": one.alone_us,
        "shared_to_alone": one.slowdown,
        "runs_by": runs_by,
        "error": one.error,
    }


def _write_trace(path: Path, timeline: Timeline) -> None:
    try:
        path.write_text(json.dumps(timeline.chrome_trace()))
    except OSError as error:
        raise CallerError(f"The timeline cannot be written to {path}: {error.strerror}.") from error


def _print_several(told: Mapping[str, Any]) -> None:
    out = console()
    out.print(f"{told['engines']} engines of {told['threads']} threads each.")
    shown = table(
        "model", "runs", "median µs", "95th", "deadlines passed", "alone µs", "shared ÷ alone", "by"
    )
    for one in told["models"]:
        times = [f"{one[name]:,.0f}" if one[name] else "–" for name in ("median_us", "p95_us", "alone_us")]
        ratio = f"{one['shared_to_alone']:.2f}" if one["shared_to_alone"] else "–"
        counts = str(one["runs"]), times[0], times[1], str(one["deadlines_passed"])
        shown.add_row(one["model"], *counts, times[2], ratio, one["runs_by"])
    out.print(shown)
    for one in told["models"]:
        if one["error"]:
            out.print(f"{one['model']} stopped: {one['error']}", soft_wrap=True)
    for row in told["waits"]:
        said = f"expected {row['expected_us']:,.0f} µs, waited {row['waited_us']:,.0f} µs"
        out.print(f"{row['row']}: {row['count']} steps, {said}, in the mean.")


def _print_run(told: Mapping[str, Any]) -> None:
    out = console()
    nodes = "?" if told["nodes"] is None else told["nodes"]
    out.print(f"{nodes} nodes; kernels are known for {told['known']} operators, {told['kernels']} run.")
    out.print(f"It runs by {told['runs_by']}.")
    shown = table("who", "µs a run", "predicted", "× ONNX Runtime")
    for one in told["standings"]:
        ratios = one["ratios"]
        gain = f"{ratios['ratio']:.2f} ({ratios['low']:.2f} to {ratios['high']:.2f})"
        predicted = f"{one['predicted_us']:,.0f}" if one["predicted_us"] is not None else ""
        shown.add_row(one["said"], f"{one['median_us']:,.0f}", predicted, gain)
    if told["standings"]:
        out.print(shown)
    for said, why in told["refused"].items():
        out.print(f"{said} takes no part: {why}", soft_wrap=True)
    if (plan := told.get("plan")) is not None:
        said = plan["not_told"] or f"The service is told how a run by its plan {plan['number']} went."
        out.print(said, soft_wrap=True)
    shown = table("nodes", "by", "µs", "ONNX Runtime's µs")
    for row in sorted(told["steps"], key=lambda row: -row["us"])[:MOST_ROWS]:
        shown.add_row(row["nodes"], row["by"], f"{row['us']:,.1f}", f"{row['onnxruntime_us']:,.1f}")
    if (left := len(told["steps"]) - MOST_ROWS) > 0:
        shown.add_row(f"… {left} more", "", "", "")
    out.print(shown)
