"""The table of trials: an exploration's, and an operator's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.utils.html import format_html

from dashboard.templatetags.tables import speedup
from dashboard.web import wording
from dashboard.web.markup import filled
from dashboard.web.tables import Column, Table, default_time, exports
from tuning.measure.outcome import COPIES
from tuning.models import Trial


def trials_table(
    rows: Sequence[Trial], every: Iterable[Trial], *, whole: bool = True, default: str = ""
) -> Table:
    """Failures included. ``whole``: the export has what is stored, words of the worker included; otherwise
    what people read. ``default``: the route of the default that they were timed in turns with."""
    columns = [
        Column("id" if whole else "trial", value="pk", only="export"),
        Column("route", "Route", "method"),
        *exports("method"),
        Column("label", "Variant", css="variant", label=""),
        Column("stage", "Stage", value="stage" if whole else _stage, show=_stage, under="route"),
        *exports("round"),
        Column("status", "Ended", "badge"),
        *exports("detail"),
        Column("ratio_to_default", "Over the default", "speedup", show=_ratio, spare=True),
        *exports("ratio_low", "ratio_high"),
        Column("median_us", "As its race saw it", "us", spare=True, css="muted", room_px=106),
        *default_time("", _default_us, lambda _: default),
        *exports("max_error", "tolerance", "build_s"),
        Column("happened", "What happened", show=_happened, css="reason lead", only="page"),
        Column("took_s", "Took", "seconds"),
        Column("copies", "Copies", value=_copies, under="took_s", only="page"),
        *exports(
            upload_us=lambda row: row.device.get("upload_us"),
            download_us=lambda row: row.device.get("download_us"),
            device_warm_us=lambda row: row.device.get("warm_us"),
            device_cold_us=lambda row: row.device.get("cold_us"),
            launch_bound=lambda row: row.device.get("launch_bound"),
        ),
        *exports("tier", "worker"),
        Column("created_at" if whole else "ended_at", "When", "when", "created_at", css="number muted spare"),
        *exports("log_tail"),
    ]
    if not whole:
        columns = [one for one in columns if one.key not in ("method", "tier", "log_tail")]
    return Table("trials", "Trials", columns, rows, every=every, css="stacks", box_css="tall")


def _happened(trial: Trial) -> str:
    """What became of it in words, and the end of its log, folded."""
    said = wording.shortened(trial.detail, 300)
    if not said and trial.max_error is not None:
        error, tolerance = wording.scientific(trial.max_error), wording.scientific(trial.tolerance)
        said = f"error {error} of {tolerance}"
    if not trial.log_tail:
        return said
    words = '<details class="more"><summary>Its last words</summary><pre class="log">{}</pre></details>'
    return filled(f"{{}} {words}", said, trial.log_tail)


def _stage(trial: Trial) -> str:
    return str(trial.get_stage_display())


def _copies(trial: Trial) -> str:
    """Of who ran on a device: copies, which no run contains, and a run by the device's own clock."""
    said, device = [], trial.device
    if None not in (spent := [device.get(name) for name in COPIES]):
        said.append("copies: {} in, {} out".format(*map(wording.duration_us, spent)))
    if None not in (took := [device.get(name) for name in ("warm_us", "cold_us")]):
        said.append("the device: {}, {} with cold caches".format(*map(wording.duration_us, took)))
    if device.get("launch_bound"):
        said.append("launch-bound")
    return "; ".join(said)


def _default_us(trial: Trial) -> float | None:
    """What the default took in turns with it."""
    return trial.median_us * trial.ratio_to_default if trial.median_us and trial.ratio_to_default else None


def _ratio(trial: Trial) -> str:
    if trial.status == "ok" or not trial.ratio_to_default:
        return speedup(trial.ratio_to_default, trial.ratio_low, trial.ratio_high)
    values = (trial.ratio_to_default, trial.ratio_low, trial.ratio_high)
    text = '<span class="faint">{}<span class="sub">{} – {}</span></span>'
    return format_html(text, *map(wording.ratio, values))
