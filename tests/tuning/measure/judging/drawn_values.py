"""Which values each operator type is checked on, and which cheat each kind of them draws out.

``python -m tests.tuning.measure.judging.drawn_values`` writes its section of ``docs/accuracy.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.hostile.cheats.document import CHEATS
from tuning.measure.judging.drawing.kinds import BESIDE, KINDS
from tuning.measure.judging.drawing.roles import BY_TYPE, OTHERS, ROLES, TRAINED

PAGE = Path(__file__).parents[4] / "docs" / "accuracy.md"
HEADING = "## What is drawn"

SECTION = """
Two sets of inputs are timed, of normal and of uniform numbers; on further ones results are checked only
(`tuning/measure/judging/drawing`). A *row* is what an operator takes together. In every further set but each
second one the rows of each input are of all kinds that its role has, in runs of one or eight; in each second
one an input is of one kind throughout. Kinds are dealt: none comes again before all others came, over the
sets of a candidate's first check, those after its race (which no process has seen) and, with other constants,
those of its confirmation. A cheap operator is checked on 3 such sets at first and 2 in each process
afterwards, on more where it has fewer rows than there are kinds (up to 12); a dear one on one and one, of
which only a part of the output is compared: some places along one axis, drawn by lot, with rows of every kind
among them, whose reference costs little (`parts.py`). After its race it also runs on sets of normal, uniform,
sparse and widely spread numbers, each in its turn. Constants are drawn by row too, anew for each
confirmation.

What is promised of exactness is promised of each element. So a product by Strassen's way is right on rows and
columns of like sizes, and is refused since it loses small ones beside large ones; a convolution by Winograd's
has room for what lies in its tile, a variance in one pass for its mean. What an infinity would spoil beside
its own result (a product by blocks, a sum with compensation) gets none; what chooses, compares, moves
or masks does. Of several nodes after each other, sizes differ by 2^3 at most, and steps are usual ones.
"""


def section() -> str:
    """The whole section of the page, heading included."""
    return "\n".join([HEADING, SECTION, *types(), "", *roles(), "", *kinds()]) + "\n"


def types() -> Iterator[str]:
    """By operator type: the roles of its inputs, in order."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for op, found in BY_TYPE.items():
        groups.setdefault(found, []).append(op)
    yield "| operator types | inputs (the last is that of all further ones) |"
    yield "| --- | --- |"
    for found, ops in sorted(groups.items(), key=lambda group: group[1]):
        yield f"| {', '.join(ops)} | {', '.join(found)} |"
    yield f"| BatchNormalization in training | {', '.join(TRAINED)} |"
    yield f"| any other | {', '.join(OTHERS)} |"


def roles() -> Iterator[str]:
    """By role: what one row is, and the kinds of values that rows have."""
    yield "| input | a row is | kinds of values |"
    yield "| --- | --- | --- |"
    for name, role in ROLES.items():
        beside = "elements, operands; blocks of: " if role.by_element else ""
        yield f"| {name} | {role.row} | {beside}{', '.join(role.kinds) or 'by element type, see below'} |"


def kinds() -> Iterator[str]:
    """By kind of values: where jobs have them, who is wrong on them, and which cheats of the suite."""
    yield "| values | in jobs, or what they are | draws out | cheats |"
    yield "| --- | --- | --- | --- |"
    told = {kind.name: (kind.jobs, kind.wrong) for kind in KINDS.values()} | BESIDE
    for name, (jobs, wrong) in told.items():
        found = [f"`{cheat.case.name}`" for cheat in CHEATS if name in cheat.values]
        yield f"| {name} | {jobs} | {wrong} | {', '.join(found)} |"


def written() -> str:
    """The page's section as it stands."""
    _, found, rest = PAGE.read_text().partition(f"{HEADING}\n")
    return found + rest.partition("\n## ")[0].rstrip("\n") + "\n"


def main() -> None:
    page = PAGE.read_text()
    PAGE.write_text(
        page.replace(written(), section()) if HEADING in page else f"{page.rstrip()}\n\n{section()}"
    )


if __name__ == "__main__":
    main()
