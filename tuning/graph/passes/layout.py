"""The layout pass (requirement G3): operators run channels-last if that is faster in all, reorders included.
PURE.

After the pass ``fusion`` the fusions are chosen again together with the layouts, since nodes may be fused in
one layout only. The model is rewritten to its laid-out form (:mod:`opatlas.graph.laid_out`): units that
follow one another pass values on channels-last, through the ends of bodies too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opatlas.graph.laid_out import laid_out_form
from opatlas.graph.linked import BodyPath
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.noise import MARGIN
from tuning.graph.layout.costing import costs_of
from tuning.graph.layout.names import NHWC, ROW_MAJOR
from tuning.graph.layout.problem import ReorderOf
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.layout.solving import LayoutSolution, solve
from tuning.graph.layout.units import LayoutUnit, RunUnit, UnitsProblem
from tuning.graph.passes.alternatives import PlanUnits
from tuning.graph.passes.draft import ChosenLayouts, LayoutQuestion, PlanDraft
from tuning.graph.passes.fusion import fused_as
from tuning.graph.passes.relaying import RelaidDraft


def laid_out_where_faster(draft: PlanDraft) -> PlanDraft:
    """A draft with those ``fusions`` as one operator each, and those ``forms`` channels-last, that make the
    whole cheapest, bodies included, by published times and by how often each body runs. Unpublished ones
    become questions if they could change the choice. Reorders and element-wise operators are estimated until
    they are published, and marked so."""
    model = TypedNodes.of_structure(draft.structure)
    reorders = ReorderCosts(_reorder_times(draft))
    units = [PlanUnits(one, body) for body, one in draft.everywhere()]
    counts = {one.body: one.draft.runs for one in units}

    def problem_of(some: Sequence[Sequence[LayoutUnit]]) -> UnitsProblem:
        return UnitsProblem(model, [one for each in some for one in each], reorders, counts)

    joint = problem_of([one.known for one in units])
    own = [run for one in units for run in one.own]
    as_it_is = joint.chosen(own)

    def one_after_the_other() -> list[Mapping[str, int]]:
        """The layouts of what is already fused."""
        fewer = problem_of([one.unless_fused for one in units])
        return [as_it_is, joint.from_fewer(fewer, solve(fewer.problem).chosen)]

    solution = solve(joint.problem, at_hand=one_after_the_other)
    hoped, best = joint, solution
    if any(one.hoped != one.known for one in units):  # else nothing is open
        hoped = problem_of([one.hoped for one in units])
        best = solve(hoped.problem, at_hand=lambda: [hoped.chosen(own)])
    runs = joint.runs(solution.chosen)
    wanted = [unit for unit, layout in (*hoped.runs(best.chosen), *runs) if layout == NHWC]
    questions = _questions(draft, model, units, wanted, (solution, best))
    row_us = costs_of(joint.problem, as_it_is).total_us
    found = ChosenLayouts(0, 0, row_us, row_us, 0.0, solution.gap, questions, _ratios(draft))
    if row_us - solution.costs.total_us <= MARGIN * _changed_us(own, runs, counts):
        return replace(draft, layouts=found)
    found = replace(found, us=solution.costs.total_us, estimated_us=solution.costs.estimated_us)
    row_major = {(unit.body, unit.nodes) for unit, layout in runs if layout == ROW_MAJOR}
    draft = draft.each(
        lambda body, one: fused_as(one, [some for some in one.fusions if (body, some.nodes) in row_major])
    )
    nhwc = joint.channels_last(solution)
    if not nhwc.units:
        return replace(draft, layouts=found)
    form = laid_out_form(model, nhwc)
    found = replace(found, units=len(nhwc.units), reorders=form.reorder_count)
    return replace(RelaidDraft(draft, model, form, nhwc, reorders).made(), layouts=found)


def _changed_us(own: Sequence[RunUnit], runs: Sequence[RunUnit], counts: Mapping[BodyPath, float]) -> float:
    """The present time of the units whose nodes would run otherwise."""
    changed = {at for unit, _ in {*runs} - {*own} for at in unit.paths}
    return math.fsum(
        counts[unit.body] * (unit.us or 0.0) for unit, _ in own if not changed.isdisjoint(unit.paths)
    )


def _reorder_times(draft: PlanDraft) -> Mapping[ReorderOf, float]:
    """Of published reorders; by the default if neither a kernel nor ONNX Runtime is published."""
    found = dict[ReorderOf, float]()
    for reorder, key in draft.reorders.items():
        if (known := draft.published.get(key)) is not None:
            us = known.in_plan_us
            found[reorder] = known.default_us if us is None else us
    return found


def _ratios(draft: PlanDraft) -> dict[str, float | None]:
    """Of units with a published channels-last operator and a known row-major time; each once."""
    found = dict[str, float | None]()
    for _, one in draft.everywhere():
        for form in one.forms:
            key = form.placed.operator.key
            if (known := draft.published.get(key)) is None or key in found:
                continue
            if us := one.row_major_us(form.nodes):
                nhwc_us = known.in_plan_us
                found[key] = us / nhwc_us if nhwc_us else None
    return found


def _questions(
    draft: PlanDraft,
    model: TypedNodes,
    units: Sequence[PlanUnits],
    wanted: Sequence[LayoutUnit],
    choices: Sequence[LayoutSolution],
) -> tuple[LayoutQuestion, ...]:
    """Units ``wanted`` channels-last by the present choice, or by the choice if all took as little so as can
    be hoped: one that would not run so even then is never asked for. Also the reorders that either makes.
    Known ones are none."""
    found, units_in = list[LayoutQuestion](), {one.body: one for one in units}
    places = {
        (one.body, one.nodes): one for one in reversed(wanted)
    }  # the hoped ones, where they are in both
    for one in places.values():
        key, gain_us = units_in[one.body].asked(one)
        if key not in draft.published and gain_us > 0:
            found.append(LayoutQuestion(key, one.nodes, gain_us, body=one.body))
    seen = set[str]()
    for placed in (reorder for choice in choices for reorder in choice.costs.reorders):
        *made_in, number = map(int, placed.value.split("/"))
        kind = model.within(tuple(made_in)).type_of(number)
        key = draft.reorders.get((kind, placed.source, placed.target), "") if kind is not None else ""
        if placed.is_estimate and kind is not None and key and key not in seen:
            seen.add(key)
            found.append(LayoutQuestion(key, (), placed.us, (kind, placed.source, placed.target)))
    return tuple(sorted(found, key=lambda one: (-one.gain_us, one.body, one.nodes)))
