"""Which values each operator type is checked on, and which cheat each kind of them draws out.

``python -m tests.tuning.measure.judging.drawn_values`` writes its section of ``docs/accuracy.md``.
"""

# ruff: noqa: E501 - prose
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from tests.hostile.cheats.document import CHEATS
from tests.tuning.measure.judging.page import write
from tuning.measure.judging.drawing.dealing import RUNS
from tuning.measure.judging.drawing.kinds import BESIDE, KINDS
from tuning.measure.judging.drawing.roles import BY_TYPE, OTHERS, ROLES, TRAINED, InputRole
from tuning.measure.scrutiny.fresh_sets import EVERYDAY, WIDE
from tuning.measure.specimen import CHEAP_BYTES, CHEAP_FLOPS, FURTHER, LITTLE, MOST_FURTHER

HEADING = "## Which values are drawn?"
USUAL = ROLES[OTHERS[0]].kinds
"""What an input may hold of which nothing more is known."""

SECTION = f"""
Two input sets are timed: of normal and of uniform numbers. On further sets results are only checked. Those have every kind of value that jobs have. Three tables say which (`tuning/measure/judging/drawing`): the role of each input by operator type, the kinds of values by role, and what each kind is. A *row* is what an operator takes together.

- In every other further set, the rows of each input are of all its kinds, in runs of {min(RUNS)} or {max(RUNS)}. In the sets between, each input is of one kind.
- Kinds are dealt: none comes again before all others came. That holds over a candidate's first check, the sets after its race, which no process has seen, and its confirmation.
- A cheap operator (up to {CHEAP_FLOPS / 1e9:g} GFLOP and {CHEAP_BYTES / 1e6:g} MB) is checked on {FURTHER} further sets at first, and on {WIDE} in each process after its race. If it has fewer rows than kinds, it gets more, up to {MOST_FURTHER}.
- A dear operator is checked on one and one, or on up to {MOST_FURTHER} if its inputs have no more than {LITTLE:,} elements. Only a part of the output is compared there: some places along one axis, drawn by lot, with rows of every kind among them, whose reference costs little (`parts.py`).
- After its race a candidate also runs on sets of {", ".join(EVERYDAY[:-1])} and widely spread numbers.
- Constants are drawn by row too, anew for each confirmation.
- Infinities are drawn where an operator chooses, compares, moves or masks. Elsewhere they would spoil honest results beside their own, of a product by blocks or a sum with compensation.
- Over several nodes, and in 16-bit types, sizes differ by 2^3 at most, and quantisation steps are usual ones.

Exactness is promised of each element. So Strassen's product is refused: it is right on rows and columns of like sizes, and loses small ones beside large ones. Winograd's convolution has room for what lies in its tile, and a variance in one pass for its mean.

### Which input has which role?
"""

ROLES_TEXT = f"""
### Which kinds does a role have?

*Usual* kinds are: {", ".join(USUAL)}.
"""

KINDS_TEXT = """
### What are the kinds, and what do they find?
"""


def section() -> str:
    """The whole section of the page, heading included."""
    lines = [HEADING, SECTION, *types(), ROLES_TEXT, *roles(), KINDS_TEXT, *kinds()]
    return "\n".join(lines) + "\n"


def types() -> Iterator[str]:
    """By operator type: the roles of its inputs, in order."""
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for op, found in BY_TYPE.items():
        groups[found].append(op)
    yield "| operator types | inputs (the last is that of all further ones) |"
    yield "| --- | --- |"
    for found, ops in sorted(groups.items(), key=lambda group: group[1]):
        yield f"| {', '.join(ops)} | {', '.join(found)} |"
    yield f"| BatchNormalization in training | {', '.join(TRAINED)} |"
    yield f"| any other | {', '.join(OTHERS)} |"


def roles() -> Iterator[str]:
    """By the kinds of values that rows have: which roles have them, and what one row is there."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, role in ROLES.items():
        groups[_kinds_of(role)][role.row].append(name)
    yield "| kinds of values | roles, and what a row of theirs is |"
    yield "| --- | --- |"
    for found, rows in groups.items():
        told = [f"{', '.join(names)} ({row})" for row, names in rows.items()]
        yield f"| {found} | {'; '.join(told)} |"


def _kinds_of(role: InputRole) -> str:
    if not role.kinds:
        return "by element type"
    less = [name for name in USUAL if name not in role.kinds]
    more = [name for name in role.kinds if name not in USUAL]
    by_difference = ", ".join(["usual" + (f" (without {', '.join(less)})" if less else ""), *more])
    found = min(by_difference, ", ".join(role.kinds), key=len)
    return f"elements, operands; blocks: {found}" if role.by_element else found


def kinds() -> Iterator[str]:
    """By kind of values: where jobs have them, who is wrong on them, and which cheats of the suite."""
    yield "| kind | in jobs, or what it is | finds a kernel that | cheats |"
    yield "| --- | --- | --- | --- |"
    told = {kind.name: (kind.jobs, kind.wrong) for kind in KINDS.values()} | BESIDE
    for name, (jobs, wrong) in told.items():
        found = [f"`{cheat.case.name}`" for cheat in CHEATS if name in cheat.values]
        yield f"| {name} | {jobs} | {wrong.removeprefix('who ')} | {', '.join(found)} |"


if __name__ == "__main__":
    write(section())
