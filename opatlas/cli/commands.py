"""The command ``opatlas``: what a job's client knows and does, for people and scripts (``--json``).

Needs the extra ``opatlas[cli]`` (typer, rich). Exit codes: 0; 1 where there is no answer; 2 where what was
asked for is wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from opatlas.errors import CallerError, OpatlasError

try:
    import typer
    from rich.progress import Progress
except ImportError:  # what a job itself needs none of
    sys.exit("The command opatlas needs typer and rich: pip install 'opatlas[cli]'.")

from opatlas.cli.profile import profile
from opatlas.cli.run import run
from opatlas.cli.terminal import attribute, console, print_json, table, tell
from opatlas.cli.terminal import client as _client

if TYPE_CHECKING:
    from opatlas.client import Answer

app = typer.Typer(no_args_is_help=True, help="The fastest known implementation of every operator.")
cache_app = typer.Typer(no_args_is_help=True, help="What this machine was told.")
app.add_typer(cache_app, name="cache")
app.command()(run)
app.command()(profile)

SHAPE = re.compile(r"(?P<shape>\d+(x\d+)*|scalar)(:(?P<dtype>\w+))?(?P<const>\*)?")
BATCH = 256
"""Operators of one request in ``prefetch``."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Operator = Annotated[str, typer.Argument(help="An ONNX operator type, an o1: key, or a file (.json, .onnx).")]
Inputs = Annotated[
    list[str] | None,
    typer.Argument(help="Its inputs: 64x256, 64x256:float16, scalar, 256x128* (a weight), - (left out)."),
]
Attributes = Annotated[
    list[str] | None, typer.Option("--attr", help="An attribute: transB=1, pads=[1,1,1,1].")
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask nobody.")]


@app.command()
def target(as_json: AsJson = False) -> None:
    """What this machine is: the hardware that times hold for."""
    from opatlas.identity import default_setting, detect_target

    found = detect_target()
    told = {"target": found.to_json(), "key": found.key, "setting": default_setting(found).key}
    if as_json:
        print_json(told)
        return
    shown = table("", "")
    for name, value in found.to_json().items():
        shown.add_row(name, ", ".join(value) if isinstance(value, list) else str(value))
    shown.add_row("key", found.key)
    console().print(shown)


@app.command()
def lookup(
    operator: Operator,
    inputs: Inputs = None,
    attr: Attributes = None,
    wait_s: Annotated[float, typer.Option("--wait", help="Seconds to wait for what is not known.")] = 0.0,
    wait_for: Annotated[str, typer.Option(help="first, contest or tuned.")] = "first",
    setting: Annotated[str, typer.Option(help="""As JSON: '{"threads": 1}'; all cores unless given.""")] = "",
    offline: Offline = False,
    as_json: AsJson = False,
) -> None:
    """The best known implementation of one operator."""
    from opatlas.identity import Setting

    options = {"setting": Setting.from_json(_json(setting, "--setting"))} if setting else {}
    with _client(offline, **options) as client:
        named, given, attrs = _asked(operator, inputs, attr)
        answer = client.lookup(named, *given, wait_s=wait_s, wait_for=wait_for, **attrs)
    if as_json:
        print_json(answer.to_json() | {"source": answer.source})
    else:
        _print_answer(answer)
    if not answer:
        raise typer.Exit(1)


@app.command()
def explain(
    operator: Operator, inputs: Inputs = None, attr: Attributes = None, as_json: AsJson = False
) -> None:
    """Why a lookup answers as it does, and which known entries are nearest."""
    with _client() as client:
        named, given, attrs = _asked(operator, inputs, attr)
        told = client.explain(named, *given, **attrs)
    if as_json:
        print_json(told)
        return
    out = console()
    out.print(f"[bold]{told['state'].replace('_', ' ')}[/]  {told['sentence']}", highlight=False)
    if told["nearest"]:
        shown = table("nearest known", "µs", "× default", "differs in")
        for one in told["nearest"]:
            differs = [f"{row['field']}: {row['known']} (asked: {row['asked']})" for row in one["differs"]]
            numbers = f"{one['median_us']:.1f}", f"{one['ratio_to_default']:.2f}"
            shown.add_row(one["summary"], *numbers, "\n".join(differs))
        out.print(shown)


@app.command()
def search(
    words: Annotated[
        list[str],
        typer.Argument(
            help="In any writing: conv 56x56 fp16, matmul(1000,48), route:tvm, dim>=1024, o1:3fa9."
        ),
    ],
    limit: Annotated[int, typer.Option(min=1, max=200, help="Show so many.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Operators that the service knows."""
    with _client() as client:
        told = client.search(" ".join(words), limit)
    if as_json:
        print_json(told)
    elif told["results"]:
        shown = table("operator", "key")
        for one in told["results"]:
            shown.add_row(one["summary"], one["key"])
        console().print(shown)
        if (more := told["count"] - len(told["results"])) > 0:
            print(f"{more} more: narrow the search, or --limit {min(200, told['count'])}.")
    else:
        print("The service knows no such operator.")
    if not told["results"]:
        raise typer.Exit(1)


@app.command()
def prefetch(
    file: Annotated[
        Path, typer.Argument(help="A JSON list of operators, one JSON operator a line, or an .onnx.")
    ],
    as_json: AsJson = False,
) -> None:
    """Bring what is known of many operators into this machine's cache; the rest is explored."""
    operators = _operators(file)
    answers: list[Answer] = []
    with _client() as client, Progress(console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("Looking up", total=len(operators))
        for begin in range(0, len(operators), BATCH):
            batch = operators[begin : begin + BATCH]
            answers += client.lookup_all(batch)
            progress.advance(task, len(batch))
        requests = client.counts["requests"]
    hits = sum(map(bool, answers))
    told = {"operators": len(operators), "hits": hits, "misses": len(answers) - hits, "requests": requests}
    if as_json:
        print_json(told)
    else:
        print(f"{hits} of {len(operators)} operators are known; {requests} requests.")


@app.command()
def login(
    url: Annotated[str, typer.Option(prompt="Address of the service")],
    key: Annotated[str, typer.Option(prompt="API key", hide_input=True)],
    as_json: AsJson = False,
) -> None:
    """Keep the service's address and a key for this user, once they have been tried."""
    from opatlas.client import RestClient
    from opatlas.client.service.login import config_path, write_login

    with RestClient(url, key, timeout_s=10.0) as rest:
        rest.call("GET", "/api/v1/signers/?limit=1")
    write_login(url, key)
    tell(as_json, {"config": str(config_path()), "url": url}, f"Written to {config_path()}.")


@app.command()
def sidecar(
    socket: Annotated[Path | None, typer.Option(help="Its socket; OPATLAS_SIDECAR unless given.")] = None,
) -> None:
    """Answer all of this user's jobs on this machine by one connection to the service, until Ctrl-C."""
    from opatlas.client.service.login import read_login
    from opatlas.conf import conf
    from opatlas.sidecar.serving import serve

    kept_url, kept_key = read_login()
    url, key = conf().url or kept_url or conf().service_url, conf().key or kept_key
    path = (socket or conf().sidecar).absolute()
    if not key:
        raise CallerError("A sidecar needs a login: OPATLAS_KEY, or opatlas login.")
    found = "jobs find it there" if path == conf().sidecar else f"jobs find it with OPATLAS_SIDECAR={path}"
    serve(path, url, key, lambda: print(f"Sidecar of {url} at {path}: {found}. Ctrl-C ends it.", flush=True))


@cache_app.command()
def stats(as_json: AsJson = False) -> None:
    """What the machine's cache holds."""
    with _client(offline=True) as client:
        told: dict[str, Any] = {"folder": str(client.home)} | (client.store.counts() if client.store else {})
    if as_json:
        print_json(told)
        return
    shown = table("", "")
    for name, value in told.items():
        shown.add_row(name, f"{value:,}" if isinstance(value, int) else value)
    console().print(shown)


@cache_app.command()
def clear(as_json: AsJson = False) -> None:
    """Forget entries, aliases and artifacts; what was revoked stays known."""
    with _client(offline=True) as client:
        client.forget_everything()
    told = f"{client.home} is empty, but for what was revoked."
    tell(as_json, {"folder": str(client.home)}, told)


@cache_app.command()
def export(
    operators: Annotated[Path, typer.Argument(help="A JSON list of operators, one a line, or an .onnx.")],
    to: Annotated[Path, typer.Argument(help="The snapshot's file.")],
    signing_key: Annotated[Path, typer.Option(help="A private key (PEM); made where there is none.")],
    as_json: AsJson = False,
) -> None:
    """Write what is chosen for these operators into a signed snapshot."""
    from opatlas.client import export_snapshot
    from opatlas.load.signing import new_key, public_bytes, read_key

    private = read_key(signing_key) if signing_key.exists() else new_key(signing_key)
    with _client() as client, console(stderr=True).status("Looking operators up, fetching artifacts"):
        made = export_snapshot(client, _operators(operators), to, private)
    count, public = len(made.answers), public_bytes(private).hex()
    told = {"snapshot": str(to), "operators": count, "public_key": public}
    tell(as_json, told, f"{to}: {count} operators; public key {public}.")


@cache_app.command("import")
def import_(
    snapshot: Annotated[Path, typer.Argument(help="The snapshot's file.")],
    public_key: Annotated[str, typer.Option(help="Who must have signed it: 64 hexadecimal digits.")],
    as_json: AsJson = False,
) -> None:
    """Check a snapshot, and put its artifacts into this machine's cache."""
    from opatlas.client import Snapshot

    if not re.fullmatch(r"[0-9a-f]{64}", public_key):
        raise CallerError("A public key is 64 hexadecimal digits, as `opatlas cache export` prints it.")
    taken = Snapshot.open(snapshot, [bytes.fromhex(public_key)])
    answers = taken.answers.values()
    with (
        _client(offline=True, snapshot=taken) as client,
        Progress(console=console(stderr=True), transient=True) as progress,
    ):
        for answer in progress.track(answers, description="Checking artifacts"):
            client.load(answer).close()
    told = f"{len(answers)} operators: Client(snapshot=Snapshot.open({str(snapshot)!r}, …)) uses them."
    tell(as_json, {"snapshot": str(snapshot), "operators": len(answers)}, told)


def main() -> None:
    """The entry point: errors are one sentence."""
    try:
        app()
    except CallerError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except OpatlasError as error:
        print(error, file=sys.stderr)
        sys.exit(1)


# ---- what is asked for, and how it is shown -------------------------------------------------------------


def _asked(
    operator: str, inputs: Sequence[str] | None, attributes: Sequence[str] | None
) -> tuple[Any, list[Any], dict[str, Any]]:
    """What ``Client.lookup`` takes: the operator, its inputs, and keywords."""
    if operator.startswith("o1:"):
        return operator, [], {}
    path = Path(operator)
    if path.suffix in (".json", ".onnx"):
        if not path.exists():
            raise CallerError(f"There is no file {operator}.")
        return path.read_bytes() if path.suffix == ".onnx" else _json(path.read_text(), operator), [], {}
    attrs = dict(attribute(text) for text in attributes or ())
    given, const = list[Any](), list[int]()
    for number, text in enumerate(inputs or ()):
        found = SHAPE.fullmatch(text)
        if text == "-":
            given.append(None)
        elif found is None:
            raise CallerError(f"Input {text!r} looks like 64x256, 64x256:float16, scalar or 256x128*.")
        else:
            shape = () if found["shape"] == "scalar" else tuple(map(int, found["shape"].split("x")))
            given.append((shape, found["dtype"] or "float32"))
            if found["const"]:
                const.append(number)
    if not given:
        raise CallerError(f"Name the inputs of {operator}: opatlas lookup {operator} 64x256 …")
    return operator, given, {"const": const, **attrs}


def _operators(path: Path) -> list[Any]:
    """What a file lists, or what an ONNX model is made of."""
    if not path.exists():
        raise CallerError(f"There is no file {path}.")
    if path.suffix == ".onnx":
        from opatlas.graph.given_model import operators_of

        return operators_of(path)
    text = path.read_text()
    if text.lstrip().startswith("["):
        return list(_json(text, str(path)))
    return [
        _json(line, f"{path}:{number}") for number, line in enumerate(text.splitlines(), 1) if line.strip()
    ]


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise CallerError(f"{where} is no JSON: {error}.") from error


def _print_answer(answer: Answer) -> None:
    out = console()
    if answer.best is None:
        out.print(f"[bold]empty[/]  {answer.reason or answer.state or answer.status}", highlight=False)
        return
    best = answer.best
    shown = table("", "")
    gained = "the default itself" if answer.is_default else f"{best['ratio_to_default']:.2f}× the default"
    shown.add_row("best", f"{best['route']}: {best['label']} ({best['method']})")
    shown.add_row("time", f"{best['median_us']:.1f} µs; the default took {best['default_us']:.1f} µs")
    shown.add_row("gain", f"{gained} ({best['ratio_low']:.2f} to {best['ratio_high']:.2f})")
    if answer.from_neighbour is not None:
        there = f"{answer.from_neighbour['target'][:11]}… ({answer.differences})"
        shown.add_row("measured on", f"a neighbour, not on this target: {there}")
    else:
        going_on = "" if answer.final else ": a faster one may be found any moment"
        shown.add_row("stage", answer.stage + going_on)
    shown.add_row("artifact", f"{best['kind']} {best['artifact'][:12]}…")
    if answer.why_trusted:
        shown.add_row("trusted", answer.why_trusted)
    shown.add_row("from", answer.source)
    out.print(shown)
