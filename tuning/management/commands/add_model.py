"""``manage.py add_model PATH|sample:resnet50 [--dims batch=1] [--threads N]``"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from catalog.commands import CallerCommand
from catalog.registry import default_organisation
from opatlas.errors import InvalidModel
from opatlas.graph.read import MAX_MODEL_BYTES
from tuning import ingest


class Command(CallerCommand):
    help = "Take a model apart, look its operators up, and print what is known of them."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "model",
            help=f"an ONNX file, an operator list (JSON), or sample:NAME of {', '.join(ingest.SAMPLES)}",
        )
        parser.add_argument("--name", default="", help="its name; the file's without its ending otherwise")
        parser.add_argument("--dims", nargs="+", default=[], help="symbolic dimensions: batch=1 sequence=128")
        parser.add_argument(
            "--threads", type=int, default=None, help="threads of the setting; all cores otherwise"
        )
        parser.add_argument(
            "--target",
            default="",
            help="a target's t1: key, or here: that of the worker seen last; one that is served otherwise",
        )
        parser.add_argument(
            "--as-float32", action="store_true", help="an operator list's half precision as float32"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        name, data = _given(options["model"])
        target, setting = ingest.default_place(options["threads"], options["target"])
        row = ingest.add_model(
            data,
            options["name"] or name,
            dims=read_dims(options["dims"]),
            organisation=default_organisation(),
            target=target,
            setting=setting,
            as_float32=options["as_float32"],
        )
        self.stdout.write(table(ingest.model_report(row)))


def read_dims(pairs: list[str], separator: str = "=") -> dict[str, int]:
    """``["batch=1"]`` → ``{"batch": 1}``; raises :class:`InvalidModel`."""
    dims = {}
    for pair in pairs:
        name, mark, size = pair.rpartition(separator)
        is_number = size.isascii() and size.isdigit()
        if not mark or not name or not is_number or not 1 <= int(size[:12]) < 2**31:
            raise InvalidModel(
                f"Dimension {pair!r} cannot be read: write a name and a size, as batch{separator}1."
            )
        dims[name] = int(size)
    return dims


def _given(model: str) -> tuple[str, bytes]:
    if model.startswith("sample:"):
        name = model.removeprefix("sample:")
        return name, ingest.sample_graph(name)
    path = Path(model)
    if not path.is_file():
        raise InvalidModel(f"There is no file {model}; a sample is named as sample:resnet50.")
    if path.stat().st_size > MAX_MODEL_BYTES:
        raise InvalidModel(f"{model} is larger than {MAX_MODEL_BYTES} bytes, the most an ONNX file can have.")
    return path.stem, path.read_bytes()


def table(report: ingest.ModelReport) -> str:
    """The report as text."""
    lines = [
        f"{'operator':<52} {'calls':>6} {'status':<11} {'best':<22} {'µs':>10} {'default':>10}  "
        f"{'speed-up':<18} {'share':>6}"
    ]
    for row in report.rows:
        best = f"{row.route}: {row.label}" if row.route else row.reason
        times = f"{_number(row.median_us)} {_number(row.default_us)}"
        gain = "" if row.ratio is None else f"{row.ratio:.2f}× [{row.ratio_low:.2f}–{row.ratio_high:.2f}]"
        share = "" if row.share is None else f"{100 * row.share:.1f} %"
        name = row.operator.summary
        lines.append(
            f"{name[:52]:<52} {row.calls:>6} {row.status:<11} {best[:22]:<22} {times}  {gain:<18} {share:>6}"
        )
    totals = report.totals
    lines.append("")
    lines.append(
        f"{report.model.name}: {totals.calls} calls, {totals.operators} distinct operators; "
        f"{totals.hit_calls} calls hit ({100 * totals.hit_share:.1f} %)."
    )
    if totals.speedup is not None and totals.speedup_geomean is not None:
        lines.append(
            f"What is known runs {totals.speedup:.2f}× as fast as the defaults ({totals.default_us:.0f} → "
            f"{totals.best_us:.0f} µs a run); an operator {totals.speedup_geomean:.2f}× on average."
        )
    lines += [f"Not expressed: {calls} calls: {reason}" for reason, calls in totals.unmapped.items()]
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return " " * 10 if value is None else f"{value:>10.1f}"
