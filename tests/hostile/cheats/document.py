"""``python -m tests.hostile.cheats.document`` writes docs/cheats.md from the suite itself."""

# ruff: noqa: E501 - prose
from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tests.hostile.cheats.honest import HONEST
from tests.hostile.cheats.incomplete import INCOMPLETE
from tests.hostile.cheats.remembering import REMEMBERING
from tests.hostile.cheats.table import Cheat
from tests.hostile.cheats.trespassing import TRESPASSING

PAGE = Path(__file__).resolve().parents[3] / "docs" / "cheats.md"
CHEATS = (*INCOMPLETE, *REMEMBERING, *TRESPASSING)

_HEAD = """# Kernels that cheat

Somebody will submit a kernel that looks fast without doing the work. `tests/hostile/cheats/` holds {cheats} that
do, and {honest} honest ones that look odd. The real laboratory compiles, checks and times all of them in its
sandbox; a test asserts that each cheat is refused with the status given here, and that no honest one is.
This page is written from that suite (`python -m tests.hostile.cheats.document`), and a test compares the two.

How it is done, in short:

- The clock, the references and the inputs' seeds are the parent's, in another process.
- Outputs are filled with NaN before each checked run, and compared with a float64 reference.
- One set of inputs lies directly before memory that nobody may read, aligned to what the manifest says and to no
  more. The heap hands out large numbers while results are checked.
- Outputs of *timed* calls are checked after the inputs were exchanged in place.
- After timing, runs of unknown number follow in which no two calls share their inputs. The last one's values are
  made on the spot, and their reference is in no child. These runs must be right, and may not take much longer
  than timed ones (2.5 times, a few microseconds and a tenth of the copying; with several threads up to 105 more, for waking them; with more than a megabyte, what moving it at 20 GB/s takes).
- A compiled kernel must leave threads, processes, signal handling, priority, CPUs, rounding, memory and loaded
  code as they were.

"""
_TAIL = """## What is not caught

- **A kernel that takes over its own process with care.** Kernel and harness share an address space. Machine code
  that rewrites the interpreter's data (not its code), answers in the harness's name, repeats the secret number of
  each question, keeps plausible times and computes just what will be looked at would pass. Nothing inside one
  process can prevent that; it is why a submitted kernel's source is read and approved by a person, and why its
  children share no zygote with anybody else's.
- **Small gains from remembering.** What saves less than the factor and the slack above stays hidden; on several
  threads, and where inputs and outputs are large, that is 100 microseconds a call and more.
- **NaN, infinity and denormal numbers as inputs.** Libraries disagree about them (`max(NaN, 0)`; XLA flushes
  denormals), so no input set holds any, and no kernel is refused for what it makes of them.
- **Reads beyond an input by less than its alignment**, or of large operators, whose sets are all timed.
- **Rare errors.** A call that is wrong once in ten thousand is found by luck only.
"""


def page() -> str:
    """The whole page."""
    parts = [_HEAD.format(cheats=len(CHEATS), honest=len(HONEST))]
    parts += _section("Computing less, or less well", INCOMPLETE)
    parts += _section("Remembering, and telling timed calls from checked ones", REMEMBERING)
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
