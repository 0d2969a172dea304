"""``manage.py plan MODEL [--target KEY] [--setting KEY] [--passes …] [--fusions N] [--layouts N]
[--profile FILE] [--most-error N] [--json] [--sign]``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog import models
from catalog.api.lookup_json import place_named
from catalog.commands import CallerCommand
from catalog.errors import StoreError
from opatlas.graph.profile import ModelProfile
from opatlas.plan.plan import ByKernel
from tuning import planning
from tuning.explore.signing import signing_key
from tuning.graph.passes.registry import PASSES, UNLESS_NAMED

PASSES_HELP = (
    f"some of {', '.join(PASSES)}, with spaces or commas between; {', '.join(UNLESS_NAMED)} unless said"
)


class Command(CallerCommand):
    help = "Make a plan of an uploaded model and print it: what each node runs by, and why."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("model", help="an uploaded model's number, or its name: the latest of that name")
        parser.add_argument("--target", default="", help="a target's t1: key, or here; the model's otherwise")
        parser.add_argument("--setting", default=None, help="a setting's s1: key, with a target")
        parser.add_argument("--passes", nargs="+", default=None, help=PASSES_HELP)
        parser.add_argument(
            "--fusions",
            type=int,
            default=0,
            choices=range(planning.MOST_FUSIONS + 1),
            metavar="N",
            help="with the pass fusion: so many unknown fused operators become misses, the best first",
        )
        parser.add_argument(
            "--layouts",
            type=int,
            default=0,
            choices=range(planning.MOST_FUSIONS + 1),
            metavar="N",
            help="with the pass layout: so many unknown channels-last operators and reorders become misses",
        )
        parser.add_argument(
            "--profile",
            type=Path,
            default=None,
            metavar="FILE",
            help="what real runs of the model showed, as opatlas profile writes it: by it branches and loops "
            "are weighed",
        )
        parser.add_argument(
            "--most-error",
            type=float,
            default=None,
            metavar="N",
            help="only kernels whose largest error, as they were checked, is at most so many times ONNX "
            "Runtime's at the same operator",
        )
        parser.add_argument("--json", action="store_true", help="as JSON: what opatlas.Session takes")
        parser.add_argument("--sign", action="store_true", help="with this machine's signing key")

    def handle(self, *args: Any, **options: Any) -> None:
        row = _named(options["model"])
        if row.organisation is None:
            raise CommandError("The model is nobody's: plans are kept for an organisation.")
        target, setting = row.target, row.setting
        if options["target"]:
            target, setting = place_named(options["target"], options["setting"])
        elif options["setting"]:
            raise CommandError("A setting needs a target: add --target.")
        structure = planning.structure_of_model(row)
        passes = options["passes"] and [name for one in options["passes"] for name in one.split(",")]
        profile = _profile(options["profile"])
        made = planning.make_plan(
            structure, target, setting, row.organisation, passes, profile, options["most_error"]
        )
        made = planning.queue_misses(
            made, target, setting, row.organisation, fusions=options["fusions"], layouts=options["layouts"]
        )
        kept, _ = planning.keep_plan(made, row.organisation, target, setting, row)
        if options["sign"]:
            try:
                planning.sign_stored(kept, signing_key())
            except StoreError as error:
                raise CommandError(str(error)) from error
        if options["json"]:
            document = {
                "id": kept.pk,
                "plan": made.plan.to_json(),
                "signature": kept.signature,
                "signer": kept.signer,
            }
            self.stdout.write(json.dumps(document, indent=1))
            return
        self.stdout.write(table(row, kept, made))


def _profile(path: Path | None) -> ModelProfile | None:
    if path is None:
        return None
    try:
        return ModelProfile.from_json(json.loads(path.read_text()))
    except (OSError, ValueError) as error:
        raise CommandError(f"The profile {path} cannot be read: {error}") from error


def _named(name: str) -> models.Model:
    rows = models.Model.objects.select_related("target", "setting", "organisation").order_by("-pk")
    number = name.isascii() and name.isdigit() and len(name) < 19
    found = rows.filter(pk=int(name)).first() if number else rows.filter(name=name).first()
    if found is None:
        raise CommandError(f"There is no model {name!r}: manage.py add_model takes one.")
    return found


def table(row: models.Model, kept: models.StoredPlan, made: planning.MadePlan) -> str:
    """The plan as text."""
    lines = [
        f"{'operator':<46} {'nodes':>5} {'by':<30} {'µs':>10} {'default':>10}  {'ratio':<18} why",
    ]
    for one in made.choices:
        by = f"{one.route}: {one.label}" if one.by == "kernel" else one.by
        ratio = "" if one.ratio is None else f"{one.ratio:.2f}× [{one.ratio_low:.2f}–{one.ratio_high:.2f}]"
        lines.append(
            f"{one.summary[:46]:<46} {one.places:>5} {by[:30]:<30} {_number(one.median_us)} "
            f"{_number(one.default_us)}  {ratio:<18} {one.reason}"
        )
    fused = sum(isinstance(step.by, ByKernel) and len(step.nodes) > 1 for step in made.plan.every_step)
    lines += [
        "",
        f"Plan {kept.pk} of {row.name} ({made.plan.model[:11]}…) on {kept.target.capability}: "
        f"{made.plan.step_count} steps, {len(made.plan.kernels)} by kernels, {fused} of several nodes.",
        f"Predicted {made.predicted_us:.1f} µs where the defaults take {made.default_us:.1f} µs, each node "
        f"alone, not in place; no time is known of {made.unknown_nodes} of {made.nodes} nodes.",
    ]
    lines.append("Gains by pass, predicted: " + ", ".join(f"{k} {v:.2f}×" for k, v in made.gains.items()))
    if made.plan.nhwc:
        lines.append(
            f"Channels-last: {made.plan.nhwc.nodes} nodes in {len(made.plan.nhwc.units)} operators; "
            f"{made.estimated_us:.1f} µs of the predicted time are estimates."
        )
    if made.fusions:
        lines.append(
            f"{len(made.fusions)} fused operators of the model are not known; the most promising would save "
            f"{made.fusions[0].gain_us:.1f} µs at best: --fusions N asks for N of them."
        )
    if made.layouts:
        lines.append(
            f"{len(made.layouts)} operators that layouts would need are not known; the most promising would "
            f"save {made.layouts[0].gain_us:.1f} µs at best: --layouts N asks for N of them."
        )
    if made.asking_s:
        lines.append(f"Exploring all that is not known would take one worker about {made.asking_s:.0f} s.")
    if made.hopeless.count or made.hopeless.known:
        lines.append(
            f"{made.hopeless.count} more are not asked for: such operators hardly ever pay. In hindsight "
            f"{made.hopeless.wrong} of {made.hopeless.known} known ones were wrongly called so."
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return " " * 10 if value is None else f"{value:>10.1f}"
