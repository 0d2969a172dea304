"""The contest's figures for people: lines and a row per route in Markdown, a row per operator in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.contest.sample import HEAVY


@dataclass(frozen=True)
class Aim:
    """A figure by its path in the JSON, how it is written, and what is aimed at."""

    path: str
    says: str
    write: Callable[[Any], str]
    aim: str


def _times(value: float) -> str:
    return f"{value:.3f}×"


def _percent(value: float) -> str:
    return f"{value:.2%}"


def _seconds(value: float) -> str:
    return f"{value:.1f} s"


def _count(value: Any) -> str:
    return str(len(value))


SPEED_UPS = (
    ("geomean_vs_eager", "over PyTorch eager", "≥ 3.0×"),
    ("geomean_vs_onnxruntime", "over ONNX Runtime", "≥ 2.2×"),
    ("geomean_vs_max_autotune", "over torch.compile, max-autotune", "≥ 3.6×"),
    ("geomean_vs_best_route", "over the best single route", "≥ 1.75×"),
)
AIMS = (
    *(Aim(name, says, _times, aim) for name, says, aim in SPEED_UPS),
    *(Aim(f"over_100us.{name}", f"{says}, from 100 µs", _times, aim) for name, says, aim in SPEED_UPS),
    Aim("time_vs_eager", "of all calls' time, over PyTorch eager", _times, "–"),
    Aim("time_vs_onnxruntime", "of all calls' time, over ONNX Runtime", _times, "–"),
    Aim("median_regret", "regret, median", _percent, "0 %"),
    Aim("p95_regret", "regret, 95th percentile", _percent, "≤ 5 %"),
    Aim("max_regret", "regret, worst", _percent, "≤ 10 %"),
    Aim("regressions", "regressions beyond 3 %, with the interval in both races", _count, "0"),
    Aim("noisy_share", "noisy trials", _percent, "≤ 5 %"),
    Aim("explored_s_per_operator", "exploring, per operator", _seconds, "≤ 6 s"),
    Aim("contest_s_per_operator", "until the last contest's end, per contested operator", _seconds, "≤ 6 s"),
    Aim("reproduced", "published intervals that hold on re-timing", _percent, "≥ 95 %"),
    Aim("median_half_width", "half width of published intervals, median", _percent, "≤ 3 %"),
)
HEAVY_AIM = "≤ 12 s"


def figures(result: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """What is judged: words, measured, aim. What was not measured (yet) is a dash."""
    found = []
    for one in AIMS:
        value: Any = result
        for name in one.path.split("."):
            value = value[name]
        aim = HEAVY_AIM if result["sample"] == HEAVY.name and one.write is _seconds else one.aim
        found.append((one.says, "–" if value is None else one.write(value), aim))
    return found


def summary(result: Mapping[str, Any]) -> str:
    """What a person wants to know, in a few lines."""
    lines = [
        f"{result['answered']} of {result['total']} operators answered, {result['contested']} contested, "
        f"{result['over_100us']['operators']} of 100 µs or more. Geometric means of speed-ups, and the rest:"
    ]
    lines += [f"  {measured:>7} {says} (aim: {aim})" for says, measured, aim in figures(result)]
    routes = f"{result['best_route']}; from 100 µs {result['over_100us']['best_route']}"
    lines.append(f"the best single route is {routes}")
    lines.append(f"won by method: {_counts(result['wins_by_method'])}")
    lines.append(f"won by route: {_counts(result['wins_by_route'])}")
    if result["rival"]:
        lines.append(_rival(result["rival"]))
    return "\n".join(lines)


def _rival(found: Mapping[str, Any]) -> str:
    overs = ", ".join(f"{says} {found[name]:.3f}×" for name, says, _ in SPEED_UPS[:3] if found[name])
    return (
        f"against the rival's choices in the same races ({found['operators']} operators): "
        f"{found['geomean']:.3f}×, faster on {found['faster']}, slower on {found['slower']} beyond 3 %\n"
        f"  the rival: {overs}; regret {found['median_regret']:.2%}, p95 {found['p95_regret']:.2%}, worst "
        f"{found['max_regret']:.2%}; {len(found['regressions'])} regressions"
    )


def write(result: Mapping[str, Any], path: Path) -> None:
    """The summary as Markdown, and the rows beside it as ``.rows.json``."""
    path.write_text(markdown(result))
    path.with_suffix(".rows.json").write_text(_one_row_a_line(rows(result)))


HEAD = """\
Every operator has two races on fresh inputs, each in fresh processes: what is served, the baselines, \
each route's best and the nearest candidates; then what is served and the fastest of the first. *Regret* \
is how much longer what is served takes than the fastest of the second race, by their ratios there: where \
a page calls two of them equal, it counts as measured. A *regression* is served and slower than the \
default by more than 3 %, with the whole interval in both races. A published interval *holds* where the \
ratio to the default, taken again in fresh processes after the service was stopped, lies inside it; \
defaults that are served are left out.
"""


def markdown(result: Mapping[str, Any]) -> str:
    head = (
        f"# The contest\n\nBudget {_budget(result)} on {result['cores']} cores: "
        f"{result['explored_s']:.0f} s of exploring, {result['measured_again_s']:.0f} s of measuring again. "
        f"Sample: `{result['sample']}`; {result['halved']} operators are recorded in half precision and "
        f"contested in float32.{_reproducing(result['reproducing'])}\n\n{HEAD}\n"
        f"```\n{summary(result)}\n```\n\n"
    )
    return head + _routes(result)


def _budget(result: Mapping[str, Any]) -> str:
    return (
        f"{result['budget_s']:.0f} s" if result["budget_s"] else f"{result['per_operator_s']:g} s an operator"
    )


def _one_row_a_line(table: Mapping[str, Any]) -> str:
    """A list of this table as JSON, in which whoever compares two runs sees which rows differ."""
    head = json.dumps({**table, "rows": []}, ensure_ascii=False).removesuffix("]}")
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table["rows"])
    return f"[{head}\n{lines}\n]}}]\n"


def _reproducing(found: Mapping[str, Any] | None) -> str:
    if not found or not found["retimed"]:
        return ""
    return (
        f" {found['retimed']} bests were timed again {found['youngest_s'] / 60:.0f} to "
        f"{found['oldest_s'] / 60:.0f} minutes after they were published: {found['overlapping']:.1%} of the "
        f"intervals overlap the later one."
    )


def _routes(result: Mapping[str, Any]) -> str:
    lines = [
        "| route | alone, over the default | covers | wins | trials | a minute and core |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name, mean in result["geomean_by_route"].items():
        trials = result["trials"].get(name, {})
        lines.append(
            f"| {name} | {mean:.2f}× | {result['covered_by_route'].get(name, 0)} "
            f"| {result['wins_by_route'].get(name, 0)} | {trials.get('trials', 0)} "
            f"| {trials.get('per_minute_per_core') or 0:.1f} |"
        )
    return "\n".join(lines) + "\n"


def rows(result: Mapping[str, Any]) -> dict[str, Any]:
    """A table with a row per operator, as a file of docs/figures/ has it."""
    columns = "operator|default, µs|over the default|over ONNX Runtime|over max-autotune|served|regret, %"
    return {
        "title": f"The {result['total']} operators of the contest",
        "conditions": f"{_budget(result)} on {result['cores']} cores; sample {result['sample']}.",
        "columns": columns.split("|"),
        "rows": [_row(row) for row in sorted(result["rows"], key=lambda row: -row["chosen"])],
    }


def _row(row: Mapping[str, Any]) -> list[str | float | None]:
    if not row["answered"]:
        return [row["operator"], None, None, None, None, f"no answer: {row['reason']}", None]
    over = [_over(row, name) for name in ("onnxruntime", "max_autotune")]
    served, regret = f"{row['route']}: {row['label']}", round(100 * row["regret"], 1)
    return [row["operator"], round(row["default_us"], 1), round(row["chosen"], 2), *over, served, regret]


def _over(row: Mapping[str, Any], name: str) -> float | None:
    return round(row["chosen"] / row["baselines"][name], 2) if name in row["baselines"] else None


def _counts(wins: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in wins.items()) or "nobody"
