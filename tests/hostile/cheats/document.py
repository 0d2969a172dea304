"""``python -m tests.hostile.cheats.document`` writes docs/cheats.md from the suite itself."""

# ruff: noqa: E501 - prose
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.hostile.cheats.evading import EVADING
from tests.hostile.cheats.honest import HONEST
from tests.hostile.cheats.incomplete import INCOMPLETE
from tests.hostile.cheats.remembering import REMEMBERING
from tests.hostile.cheats.table import Cheat
from tests.hostile.cheats.trespassing import TRESPASSING
from tests.hostile.cheats.unusual import UNUSUAL

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cheats.md"
CHEATS = (*INCOMPLETE, *UNUSUAL, *REMEMBERING, *EVADING, *TRESPASSING)

_HEAD = """# Kernels that cheat

Somebody will submit a kernel that looks fast without doing the work. `tests/hostile/cheats/` holds {cheats} that
do, and {honest} honest ones that look odd. The real laboratory compiles, checks and times all of them in its
sandbox (`make test-cheats`; in `make test` one for each way of being caught): tests assert that each cheat is
refused with the status given here, and that no honest one is.
This page is written from that suite (`python -m tests.hostile.cheats.document`), and a test compares the two.

How it is done, in short:

- The clock, the references and the inputs' seeds are the parent's, in another process.
- Outputs are filled with NaN before each checked run, and compared with a float64 reference.
- Results are compared on more than is timed: further sets hold rows of all kinds of values that jobs have,
  dealt in turn, by operator type and input (`docs/accuracy.md` has the table); a large operator's are compared
  in a part of its output that nobody knows. Constants are of trained layers' kinds, others in each confirmation.
- One set of inputs lies directly before memory that nobody may read, aligned to what the manifest says and to no
  more. The heap hands out large numbers while results are checked.
- Outputs of *timed* calls are checked after the inputs were exchanged in place, or after a few outputs were
  changed under the same inputs: after the first round, after others drawn by lot, and after the last.
- After timing, the parent draws new input sets that no process has seen, of several distributions. The child
  copies some of them into buffers and then runs once on each; that run alone is timed, and every output of it is
  compared with a reference that is in no child. It may take 1.5 times as long as timed calls, beside 6
  microseconds a batch and what the default's own process needs more in the same minute, up to 8 microseconds a
  batch (2.5 times and 210
  microseconds a batch with several threads, which have to be woken; with more than a megabyte, what moving it at
  20 GB/s takes). Nothing is taken off that the child could make larger; a disturbed batch accuses nobody and
  excuses nobody: with too few quiet ones, or with times that prove neither (an accusation takes 1.5 times what
  is allowed), the status is `noisy`, which nobody can approve.
- The parent reads the CPU time of a child's first thread, and of all others, around these runs.
- A compiled kernel must leave threads, processes, signal handling, priority, CPUs, rounding, memory and loaded
  code as they were.

"""
_TAIL = """## What is not caught

- **A kernel that takes over its own process with care.** Kernel and harness share an address space. Machine code
  that rewrites the interpreter's data (not its code), answers in the harness's name, repeats the secret number of
  each question, keeps plausible times and computes just what will be looked at would pass. Nothing inside one
  process can prevent that; it is why a submitted kernel's source is read and approved by a person, and why its
  children share no zygote with anybody else's. Closing it costs a harness without an interpreter, in a process
  of its own that lends the kernel memory only: 10 microseconds a call, which a job does not pay.
- **Small gains from remembering.** What saves less than the factor and the slack above stays hidden: half of a
  call's time, and beside it 6 to 14 microseconds a batch (of up to 16 calls where a core's cache holds so many
  sets, of one where it does not); on several threads up to 105 microseconds a call. Closing it costs timed calls on ever new values, whose copying would be in every time.
- **NaN where libraries disagree** (`max(NaN, 0)`; the types are listed in `tuning/measure/judging/strata.py`),
  and in operators that couple elements: no input set holds any there. Nor are there infinities where they are
  added or multiplied: honest sums with compensation, or products by blocks, make NaN of them. Denormal numbers
  may be taken for zero.
- **What looks for a coincidence**: values that are recognised by more than their kind (a certain number at a
  certain place) are met by luck only. So may be a kind that a whole large input has throughout, where it is wrong
  on no row of it alone.
- **What costs less exactness than honest implementations lose themselves.** Each element may be off by what its
  type's arithmetic can lose (`docs/accuracy.md`), which for a sum of n terms grows with the root of n: factors of
  10 bits show up in sums of tens of thousands of terms, and in longer ones may not. A sigmoid or an erf may be 0 below 1e-7, since
  libraries take them from a tanh or a polynomial. Convolutions of 3 and 5 elements have room for Winograd.
  Closing this would cost libraries their place: it is their own inexactness.
- **A result that steps** (Floor, a comparison, a quantised number) right at a step may be one off to the wrong side.
- **Reads beyond an input by less than its alignment.**
- **Rare errors.** A call that is wrong once in ten thousand is found by luck only: some hundred outputs of a
  candidate are compared. Comparing each costs a hundred times the evaluation.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(cheats=len(CHEATS), honest=len(HONEST))]
    parts += _section("Computing less, or less well", INCOMPLETE)
    parts += _section("Right on the usual values only", UNUSUAL)
    parts += _section("Remembering, and telling timed calls from checked ones", REMEMBERING)
    parts += _section("Evading these checks", EVADING)
    parts += _section("Reaching for what is not theirs", TRESPASSING)
    parts += ["## Honest, however it looks\n\n", "| name | what is odd |\n| --- | --- |\n"]
    parts += [f"| `{case.name}` | {_cell(case.trick)} |\n" for case in HONEST]
    return "".join([*parts, "\n", _TAIL])


def _section(title: str, cheats: Iterable[Cheat]) -> list[str]:
    lines = [f"## {title}\n\n", "| name | trick | how it is caught | status |\n| --- | --- | --- | --- |\n"]
    for cheat in cheats:
        status = " or ".join(f"`{status}`" for status in cheat.statuses)
        case = cheat.case
        lines.append(f"| `{case.name}` | {_cell(case.trick)} | {_cell(cheat.caught)} | {status} |\n")
    return [*lines, "\n"]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page())
