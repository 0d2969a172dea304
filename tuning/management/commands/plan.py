"""``manage.py plan MODEL [--target KEY] [--setting KEY] [--passes …] [--fusions N] [--json] [--sign]``"""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandError, CommandParser

from catalog import models
from catalog.api.lookup_json import place_named
from catalog.commands import CallerCommand
from catalog.errors import StoreError
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
        made = planning.make_plan(structure, target, setting, row.organisation, passes)
        made = planning.queue_misses(made, target, setting, row.organisation, fusions=options["fusions"])
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
            f"{one.summary[:46]:<46} {len(one.nodes):>5} {by[:30]:<30} {_number(one.median_us)} "
            f"{_number(one.default_us)}  {ratio:<18} {one.reason}"
        )
    kernels = [step for step in made.plan.steps if isinstance(step.by, ByKernel)]
    fused = sum(len(step.nodes) > 1 for step in kernels)
    nodes = sum(len(step.nodes) for step in made.plan.steps)
    lines += [
        "",
        f"Plan {kept.pk} of {row.name} ({made.plan.model[:11]}…) on {kept.target.capability}: "
        f"{len(made.plan.steps)} steps, {len(kernels)} by kernels, {fused} of several nodes.",
        f"Predicted {made.predicted_us:.1f} µs where the defaults take {made.default_us:.1f} µs, each node "
        f"alone, not in place; no time is known of {made.unknown_nodes} of {nodes} nodes.",
    ]
    if made.fusions:
        lines.append(
            f"{len(made.fusions)} fused operators of the model are not known; the most promising would save "
            f"{made.fusions[0].gain_us:.1f} µs at best: --fusions N asks for N of them."
        )
    return "\n".join(lines)


def _number(value: float | None) -> str:
    return " " * 10 if value is None else f"{value:>10.1f}"
