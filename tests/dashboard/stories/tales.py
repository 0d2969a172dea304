"""What the three stories tell: the sentences of docs/stories.md, each before its picture.

The tests beside this walk them on the real service, panel by panel. ``python -m tests.dashboard.stories``
takes the pictures anew and writes the page, which a test compares with what is told here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.databases import ROOT

PAGE = ROOT / "docs" / "stories.md"
PICTURES = ROOT / "docs" / "stories"


@dataclass(frozen=True)
class Panel:
    """``sentence`` stands before the picture ``name``; ``seen`` says the picture to who cannot see it."""

    name: str
    sentence: str
    seen: str


@dataclass(frozen=True)
class Tale:
    """``theme``: how its pages look. ``test`` is the file that walks it."""

    name: str
    title: str
    theme: str
    begins: str
    panels: Sequence[Panel]
    ends: str
    test: str

    def picture(self, panel: Panel) -> Path:
        return PICTURES / f"{self.name}-{panel.name}.webp"


ENGINEER = Tale(
    "engineer",
    "An engineer finds a slow operator and uses its best",
    "light",
    "Edda's training run asked the catalogue for its operators; a worker has explored them since. She wants "
    "to know which one costs her most, and has a minute.",
    (
        Panel(
            "operators",
            "She opens *Operators* and sorts by time: the slowest stands on top, with what is known of it.",
            "The list of operators, sorted by time",
        ),
        Panel(
            "operator",
            "Its page begins with the ways to use the best that is known, and says how much faster that is "
            "than PyTorch eager, with what certainty.",
            "The operator's page: the ways to use its best, its time, and its speed-up with an interval",
        ),
        Panel(
            "key",
            "She makes a key of her own, which is shown this once.",
            "The page of a person's own API keys, with a new key",
        ),
        Panel(
            "python",
            "She pastes the Python that the page shows, and runs it on her arrays: what it answers is "
            "loaded, and computes what she expects.",
            "A terminal: the Python from the page is run, and prints who answered and how long it all took",
        ),
        Panel(
            "curl",
            "A colleague without Python takes the line for curl.",
            "A terminal: the line for curl is run, and answers with the same implementation",
        ),
    ),
    "The test measures from the first click to the result, and fails beyond a minute.",
    "tests/dashboard/stories/test_engineer.py",
)

OPERATOR = Tale(
    "operator",
    "An operator of the service is alerted to a broken route, and mends it",
    "dark",
    "On a worker's machine an upgrade removed the C compiler while the worker ran. Hand-written kernels are "
    "compiled there: from now on each of their trials fails.",
    (
        Panel(
            "overview",
            "Olaf opens the overview. It begins with what is wrong.",
            "The overview, with a route that failed on every trial and an alert that nobody has taken up",
        ),
        Panel(
            "alert",
            "The alert says which route, on which hardware, how often and why. He takes it up, so that "
            "nobody else looks for the same.",
            "The alert, acknowledged, with its history",
        ),
        Panel(
            "failure",
            "*Where to look* leads to the cause, under which all failed trials are one: the compiler is "
            "gone.",
            "One cause of failure: its message, and whom it struck",
        ),
        Panel(
            "again",
            "He installs the compiler again and presses *Try again*: what had failed goes back into the "
            "queues.",
            "The same page after Try again, with how many explorations were asked",
        ),
        Panel(
            "resolved",
            "The worker compiles the kernels, and the alert resolves by itself.",
            "The alert, resolved: its history from the first failure to the end",
        ),
    ),
    "The test breaks a real worker's compiler, and waits for its real trials; only the minute for which a "
    "cause must be gone is shortened.",
    "tests/dashboard/stories/test_operator.py",
)

PAYER = Tale(
    "payer",
    "A payer is warned of spending, and understands a charge",
    "light",
    "Acme's jobs are charged for compiled code. Its credit is meant to last the quarter; Paula, who pays, "
    "looks in once a week.",
    (
        Panel(
            "overview",
            "The overview says that an alert fires, and beside it what was charged.",
            "The overview of an organisation, with an alert about its credit",
        ),
        Panel(
            "warning",
            "Credit ends soon: so much is left, and so much was spent within three days.",
            "The alert about credit that ends",
        ),
        Panel(
            "billing",
            "*Where to look* leads to the bill: since when it costs more, by which method, and the price in "
            "words.",
            "The bill: charges by day and method, the prices that apply, the last entries",
        ),
        Panel(
            "ledger",
            "The ledger has every charge by itself; all of the last are one job's.",
            "The ledger, with the job of each charge",
        ),
        Panel(
            "charge",
            "One charge names the hit that it belongs to: when it was served, to which job, what it was "
            "answered with, how much time that saved, and why it costs what it costs.",
            "One charge: the hit that was served, and the price",
        ),
        Panel(
            "job",
            "The job's page shows what else that run asked for: somebody began to run it every few minutes. "
            "She knows whom to ask.",
            "The job that was charged, with what it asked for",
        ),
    ),
    "The test compares what Paula reads with what the service recorded when it served that hit.",
    "tests/dashboard/stories/test_payer.py",
)

TALES = (ENGINEER, OPERATOR, PAYER)

_HEAD = """\
# Three stories

What people do with the dashboard, in pictures. Each story is a test that walks these pages in Chromium, by
clicks: the first two on a real worker, which really explores, fails and is mended. `make stories` walks them
and takes the pictures anew.
"""


def written() -> str:
    """The whole of docs/stories.md."""
    return "\n".join([_HEAD, *(line for tale in TALES for line in _told(tale))])


def _told(tale: Tale) -> Iterator[str]:
    yield f"## {tale.title}\n\n{tale.begins}\n"
    for panel in tale.panels:
        yield f"{panel.sentence}\n"
        yield f"![{panel.seen}]({tale.picture(panel).relative_to(PAGE.parent)})\n"
    yield f"{tale.ends} (`{tale.test}`)\n"
