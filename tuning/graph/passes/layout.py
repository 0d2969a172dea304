"""The pass of requirement G3: units run channels-last where that takes less in all, reorders counted. PURE.

Units are the operators as the passes before have made them, those of branches and loops with them. The model
is rewritten to its laid-out form (:mod:`opatlas.graph.laid_out`): units that follow one another hand their
values on channels-last, through the ends of bodies too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opatlas.graph.channels_last import NOTHING
from opatlas.graph.laid_out import laid_out_form
from opatlas.graph.linked import BodyPath
from opatlas.graph.typed_nodes import TypedNodes
from opatlas.noise import MARGIN
from opatlas.plan.making import needed_nodes
from tuning.graph.layout.forms import LayoutForm
from tuning.graph.layout.problem import MarkedCost, ReorderOf
from tuning.graph.layout.reorders import ReorderCosts
from tuning.graph.layout.solving import LayoutSolution, solve
from tuning.graph.layout.units import (
    LayoutUnit,
    all_row_major_us,
    chosen_layouts,
    is_laid_out,
    problem_of,
)
from tuning.graph.passes.draft import ChosenLayouts, KnownOperator, LayoutQuestion, PlanDraft
from tuning.graph.passes.relaying import RelaidDraft


def laid_out_where_faster(draft: PlanDraft) -> PlanDraft:
    """A draft in which those of its ``forms``, and of its bodies', run channels-last that make the whole
    cheapest, by published times and by how often each body runs; what is not published takes no part, and is
    a question where it could change the choice. Reorders and operators that go by element are estimated until
    they are published, and said to be."""
    model = TypedNodes.of_structure(draft.structure)
    reorders = ReorderCosts(_reorder_times(draft))
    known, hoped = list[LayoutUnit](), list[LayoutUnit]()
    counts = dict[BodyPath, float]()
    for body, one in draft.everywhere():
        counts[body] = one.runs
        here, at_best = _units(one, body)
        known += here
        hoped += at_best
    problem = problem_of(model, known, reorders, counts)
    solution = solve(problem)
    row_us = solution_us = solution.costs.total_us
    nhwc = chosen_layouts(model, problem, solution, known)
    if nhwc.units:
        row_us = all_row_major_us(problem)
        changed_us = (counts[one.body] * (one.us or 0.0) for one in known if is_laid_out(solution, one))
        if row_us - solution_us <= MARGIN * math.fsum(changed_us):
            nhwc, solution_us = NOTHING, row_us
    best = solve(problem_of(model, hoped, reorders, counts))
    questions, ratios = _questions(draft, model, hoped, best, solution), _ratios(draft)
    if not nhwc.units:
        none = ChosenLayouts(0, 0, row_us, row_us, 0.0, solution.gap, questions, ratios)
        return replace(draft, layouts=none)
    form = laid_out_form(model, nhwc)
    found = ChosenLayouts(
        len(nhwc.units), form.reorder_count, row_us, solution_us, solution.costs.estimated_us, solution.gap,
        questions, ratios,
    )  # fmt: skip
    return replace(RelaidDraft(draft, model, form, nhwc, reorders).made(), layouts=found)


def _units(draft: PlanDraft, body: BodyPath) -> tuple[list[LayoutUnit], list[LayoutUnit]]:
    """What is needed of the model, or of a body, by the operators that the draft has; and the same as the
    best that could be: what is not published channels-last takes nothing so."""
    forms = {one.nodes: one for one in draft.forms}
    needed = needed_nodes(draft.structure)
    units = {one.fused[-1]: one.fused for one in draft.chosen.values() if one.fused} | dict(draft.groups)
    inner = {node for unit in units.values() for node in unit[:-1]}
    known, hoped = list[LayoutUnit](), list[LayoutUnit]()
    for node in needed:
        if node in inner:
            continue
        nodes = units.get(node, (node,))
        us = _unit_us(draft, nodes)
        one = LayoutUnit(nodes, us, body=body)
        form = forms.get(nodes)
        if form is None or us is None:
            known.append(one)
            hoped.append(one)
            continue
        cost = _nhwc_cost(draft, form)
        known.append(replace(one, turned=form.turned, nhwc=cost))
        if form.placed.operator.key not in draft.published:
            cost = MarkedCost(us if form.parts else 0.0, True)  # by element no less than now
        hoped.append(replace(one, turned=form.turned, nhwc=cost))
    return known, hoped


def _unit_us(draft: PlanDraft, nodes: tuple[int, ...]) -> float | None:
    """As the draft has it; None where nothing is known."""
    if nodes[-1] in draft.chosen:
        return draft.chosen[nodes[-1]].median_us
    times = [draft.left_us(node) for node in nodes]
    known = [time for time in times if time is not None]
    return math.fsum(known) if len(known) == len(times) else None


def _nhwc_cost(draft: PlanDraft, form: LayoutForm) -> MarkedCost | None:
    """None where it is not known, or nobody who runs in a plan has it."""
    known = draft.published.get(form.placed.operator.key)
    if known is not None:
        us = in_plan_us(known)
        return None if us is None else MarkedCost(us)
    if not form.parts:
        return None
    times = [draft.left_us(node) for node in form.nodes]
    return MarkedCost(math.fsum(time for time in times if time is not None), True)


def in_plan_us(known: KnownOperator) -> float | None:
    """By its kernel or by ONNX Runtime, whoever takes less."""
    times = (known.kernel.median_us if known.kernel is not None else None, known.onnxruntime_us)
    return min((time for time in times if time is not None), default=None)


def _ratios(draft: PlanDraft) -> dict[str, float | None]:
    """Of units whose channels-last operator is published and whose own time is known; each once."""
    found = dict[str, float | None]()
    for _, one in draft.everywhere():
        for form in one.forms:
            key, us = form.placed.operator.key, _unit_us(one, form.nodes)
            if (known := draft.published.get(key)) is None or key in found or not us:
                continue
            nhwc_us = in_plan_us(known)
            found[key] = us / nhwc_us if nhwc_us else None
    return found


def _reorder_times(draft: PlanDraft) -> Mapping[ReorderOf, float]:
    """Of reorders that are published; by the default where neither a kernel nor ONNX Runtime is."""
    found = dict[ReorderOf, float]()
    for reorder, key in draft.reorders.items():
        if (known := draft.published.get(key)) is not None:
            us = in_plan_us(known)
            found[reorder] = known.default_us if us is None else us
    return found


def _questions(
    draft: PlanDraft,
    model: TypedNodes,
    hoped: Sequence[LayoutUnit],
    best: LayoutSolution,
    now: LayoutSolution,
) -> tuple[LayoutQuestion, ...]:
    """What would run channels-last if it took nothing so, by what it takes now: who would not even then is
    never asked for. And reorders that either choice makes and nobody has measured, by what they are said to
    take."""
    drafts = dict(draft.everywhere())
    forms = {(body, form.nodes): form for body, one in drafts.items() for form in one.forms}
    found = list[LayoutQuestion]()
    for one in hoped:
        if one.nhwc is None or not is_laid_out(best, one):
            continue
        key = forms[one.body, one.nodes].placed.operator.key
        if key not in draft.published:
            us = drafts[one.body].runs * (one.us or 0.0)
            found.append(LayoutQuestion(key, one.nodes, us, body=one.body))
    seen = set[str]()
    for placed in (*now.costs.reorders, *best.costs.reorders):
        *made_in, number = map(int, placed.value.split("/"))
        kind = model.within(tuple(made_in)).type_of(number)
        key = draft.reorders.get((kind, placed.source, placed.target), "") if kind is not None else ""
        if placed.is_estimate and kind is not None and key and key not in seen:
            seen.add(key)
            found.append(LayoutQuestion(key, (), placed.us, (kind, placed.source, placed.target)))
    return tuple(sorted(found, key=lambda one: -one.gain_us))
