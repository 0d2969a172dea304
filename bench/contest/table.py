"""The contest's figures for people: a few lines, and a table in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

AIMS = {
    "geomean_vs_eager": ("over PyTorch eager", 1.6),
    "geomean_vs_onnxruntime": ("over ONNX Runtime", None),
    "geomean_vs_max_autotune": ("over torch.compile, max-autotune", 1.25),
    "geomean_vs_best_route": ("over the best single route", 1.15),
}


def summary(result: Mapping[str, Any]) -> str:
    """What a person wants to know, in a few lines."""
    lines = [
        f"{result['answered']} of {result['total']} operators answered; geometric means of the speed-up:"
    ]
    for name, (what, aim) in AIMS.items():
        aimed = f" (aim: {aim}×)" if aim else ""
        lines.append(f"  {result[name]:.3f}× {what}{aimed}")
    lines.append(f"  the best single route is {result['best_route']}")
    lines.append(
        f"regret: median {result['median_regret']:.2%} (aim: 0.5 %), worst {result['max_regret']:.1%} "
        f"(aim: 10 %); regressions: {len(result['regressions'])}"
    )
    lines.append(f"won by method: {_counts(result['wins_by_method'])}")
    lines.append(f"won by route: {_counts(result['wins_by_route'])}")
    return "\n".join(lines)


def write(result: Mapping[str, Any], path: Path) -> None:
    """The summary and a row per operator as Markdown."""
    path.write_text(markdown(result))


def markdown(result: Mapping[str, Any]) -> str:
    head = (
        f"# The contest\n\nBudget {result['budget_s']:.0f} s on {result['cores']} cores: "
        f"{result['explored_s']:.0f} s of exploring, {result['measured_again_s']:.0f} s of measuring again. "
        f"Sample: `{result['sample']}`; {result['halved']} operators are recorded in half precision and "
        "contested in float32.\n\n"
        f"```\n{summary(result)}\n```\n\n"
    )
    return head + _routes(result) + _rows(result)


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
    return "\n".join(lines) + "\n\n"


def _rows(result: Mapping[str, Any]) -> str:
    lines = [
        "| operator | default µs | over default | over ONNX Runtime | over max-autotune | served | regret |",
        "| --- | --: | --: | --: | --: | --- | --: |",
    ]
    for row in sorted(result["rows"], key=lambda row: -row["chosen"]):
        operator = row["operator"].replace("|", "\\|")
        if not row["answered"]:
            lines.append(f"| {operator} | | | | | no answer: {row['reason']} | |")
            continue
        over = [_over(row, name) for name in ("onnxruntime", "max_autotune")]
        lines.append(
            f"| {operator} | {row['default_us']:.1f} | {row['chosen']:.2f}× | {over[0]} | {over[1]} "
            f"| {row['route']}: {row['label']} | {row['regret']:.1%} |"
        )
    return "\n".join(lines) + "\n"


def _over(row: Mapping[str, Any], name: str) -> str:
    return f"{row['chosen'] / row['baselines'][name]:.2f}×" if name in row["baselines"] else "–"


def _counts(wins: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in wins.items()) or "nobody"
