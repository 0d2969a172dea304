"""``python -m tests.hostile.cheats.document`` writes docs/cheats.md from the suite itself."""

# ruff: noqa: E501 - prose
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tests.hostile.cheats.evading import EVADING
from tests.hostile.cheats.honest import HONEST
from tests.hostile.cheats.incomplete import INCOMPLETE
from tests.hostile.cheats.remembering import REMEMBERING
from tests.hostile.cheats.table import Cheat
from tests.hostile.cheats.trespassing import TRESPASSING
from tests.hostile.cheats.unusual import UNUSUAL
from tuning.measure.scrutiny import recomputation as unseen
from tuning.measure.scrutiny.fresh_sets import MOST_CALLS
from tuning.measure.scrutiny.watch import MOST_LOOKS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cheats.md"
CHEATS = (*INCOMPLETE, *UNUSUAL, *REMEMBERING, *EVADING, *TRESPASSING)

_HEAD = """# How are kernels that cheat caught?

Somebody will submit a kernel that looks fast without doing the work. `tests/hostile/cheats/` has {cheats} kernels that cheat and {honest} honest ones that look odd. Tests build, check and time them in the sandbox, as the service does. Each cheat must be refused with the status that stands beside its source there, and no honest kernel may be. `make test-cheats` runs all of them, `make test` one for each check. `python -m tests.hostile.cheats.document` writes this page.

## How is a kernel checked?

The parent process has the clock, the references and the inputs' seeds. The kernel runs in a child.

1. **Results** are compared with a float64 reference, element by element. Outputs hold NaN before each checked run. Two input sets are timed. Further sets are only checked: they have [every kind of value that jobs have](accuracy.md#which-values-are-drawn).
2. **Timed calls** are looked at: what they left is compared, after the inputs or a few outputs were changed. This happens after the first round, after up to {looks} others drawn by lot, and after the last.
3. **New values** come after the timing: sets that no process has seen. Only single runs on them are timed, and each output is compared ([scrutiny](../tuning/measure/scrutiny/README.md)).
4. **The process** must be as it was ([judging](../tuning/measure/judging/README.md)).

### How long may new values take?

| | one thread | several threads, to be woken |
| --- | --: | --: |
| factor on the timed calls | {ratio:g} | {pool_ratio:g} |
| slack for each batch | {slack:g} µs | {pool_slack:g} µs |

Two things are added: what the default needs more in the same minute, up to {more:g} µs a batch, and what a call moves beyond 1 MB, at {speed:g} GB/s. A batch has up to {calls} calls, as many as a core's cache holds sets for.

- What is within these bounds, but beyond the slack, counts as the kernel's time.
- A kernel is accused if its quickest run takes {doubt:g} times what is allowed, with {enough} quiet batches. If {most} batches were disturbed and the default's were not, {noise:g} times.
- What lies between is `noisy`, which nobody can approve. So are too few quiet batches.

"""
_HONEST = """## Which honest kernels look odd?

They are not refused:

"""
_TAIL = """
## What is not caught?

- **A kernel that takes over its own process with care.** Kernel and harness share an address space. Machine code could rewrite the interpreter's data, answer in the harness's name and repeat each question's secret number. With plausible times it passes. Nothing inside one process can prevent that. So a person approves each source, and submitted kernels share no zygote with others. A harness without an interpreter, in another process, would close this. It would add 10 µs to each time.
- **Small gains from remembering.** The slack stays hidden. Where the default slows down too, so do half of a call's time and {hidden:g} µs a batch. New values in every timed call would close this, and put copying into every time.
- **NaN where libraries disagree** (`max(NaN, 0)`; `tuning/measure/judging/strata.py` lists the types). Operators that couple elements get no NaN at all. Where infinities would be added or multiplied, they get none either: honest compensated sums and products by blocks make NaN of them. Denormal numbers may be taken for zero.
- **Coincidences.** A kernel may recognise more than a kind of value, such as one number at one place. Only luck finds that. The same is true of a kind that a whole large input has, where each row alone comes out right.
- **Inexactness that honest kernels have too.** An element may be off by what its type's arithmetic can lose ([accuracy.md](accuracy.md)). For a sum that grows with the root of its terms: 10-bit factors show in tens of thousands of terms, and may not in more. A sigmoid or an erf may be 0 below 1e-7, since libraries make them from a tanh or a polynomial. Convolutions of 3 and 5 elements have room for Winograd.
- **Steps.** Right at a step of Floor, of a comparison or of a quantised number, a result may be one off.
- **Reads beyond an input by less than its alignment.**
- **Rare errors.** Some hundred outputs of a candidate are compared. Only luck finds one wrong call in ten thousand. Comparing all would take a hundred times as long.
"""

_SECTIONS: tuple[tuple[str, Sequence[Cheat]], ...] = (
    ("Who computes less, or less well?", INCOMPLETE),
    ("Who is right on the usual values only?", UNUSUAL),
    ("Who remembers, or tells timed calls from checked ones?", (*REMEMBERING, *EVADING)),
    ("Who reaches for what is not theirs?", TRESPASSING),
)


def page() -> str:
    """The whole page."""
    head = _HEAD.format(
        cheats=len(CHEATS), honest=len(HONEST), looks=MOST_LOOKS - 1, calls=MOST_CALLS,
        ratio=unseen.UNSEEN_RATIO, slack=unseen.SLACK_US,
        pool_ratio=unseen.POOL_RATIO, pool_slack=unseen.POOL_SLACK_US,
        more=unseen.MORE_US, speed=unseen.COLD_BYTES_PER_US / 1e3,
        doubt=unseen.BEYOND_DOUBT, enough=unseen.ENOUGH, noise=unseen.BEYOND_NOISE, most=unseen.MOST_BATCHES,
    )  # fmt: skip
    sections = (line for section in _SECTIONS for line in _section(*section))
    honest = (f"- {case.trick}\n" for case in HONEST)
    return "".join([head, *sections, _HONEST, *honest, _TAIL.format(hidden=unseen.SLACK_US + unseen.MORE_US)])


def _section(title: str, cheats: Sequence[Cheat]) -> Iterator[str]:
    """By check: those that catch several cheats first, then cheats that have a check of their own."""
    by_check: dict[str, list[str]] = defaultdict(list)
    for cheat, trick in zip(cheats, _whole([cheat.case.trick for cheat in cheats]), strict=True):
        by_check[cheat.caught].append(trick)
    yield f"## {title}\n\n{len(cheats)} cheats:\n\n"
    for check, tricks in by_check.items():
        if len(tricks) > 1:
            yield "".join([f"**{check}**\n\n", *(f"- {trick}\n" for trick in tricks), "\n"])
    alone = [(tricks[0], check) for check, tricks in by_check.items() if len(tricks) == 1]
    if alone:
        yield "| what it does | how it is caught |\n| --- | --- |\n"
        yield from (f"| {_cell(trick)} | {_cell(check)} |\n" for trick, check in alone)
        yield "\n"


def _whole(tricks: Iterable[str]) -> Iterator[str]:
    """What begins with "The same" follows what it is the same as: on the page that stands elsewhere."""
    before = ""
    for trick in tricks:
        same = trick.startswith("The same")
        before = before if same else trick
        yield f"{before} {trick}" if same else trick


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
