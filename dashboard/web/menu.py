"""What the service has for whom: the navigation's groups, and what else can be gone to, or begun, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from catalog.viewing import Viewer
from dashboard.web.addresses import address


def _everybody(viewer: Viewer) -> bool:
    return True


@dataclass(frozen=True)
class MenuEntry:
    """One page. ``words`` are further names by which it is found."""

    page: str  # its name among the addresses
    icon: str
    title: str
    words: str = ""
    shown: Callable[[Viewer], bool] = _everybody
    within: str = ""  # the page of whose section it is, where its address does not say so

    def matches(self, asked: list[str]) -> bool:
        text = f"{self.title} {self.words}".lower()
        return all(word in text for word in asked)


def _bills(viewer: Viewer) -> bool:
    return viewer.may_bill


def _prices(viewer: Viewer) -> bool:
    return viewer.may_price


def _submits(viewer: Viewer) -> bool:
    return viewer.may_submit


def _administers(viewer: Viewer) -> bool:
    return viewer.may_administer


def _belongs(viewer: Viewer) -> bool:
    return bool(viewer.roles) or viewer.may_administer


def _operates(viewer: Viewer) -> bool:
    return viewer.may_operate


MENU: tuple[tuple[str, tuple[MenuEntry, ...]], ...] = (
    ("Catalogue", (
        MenuEntry("overview", "overview", "Overview", "health status hit rate home"),
        MenuEntry("operators", "operators", "Operators", "catalogue list"),
        MenuEntry("methods", "methods", "Methods", "library compiler manual routes failures limits"),
        MenuEntry("models", "models", "Models", "upload onnx"),
        MenuEntry("kernels", "docs", "Kernels", "hand-written approve"),
    )),
    ("Work", (
        MenuEntry("jobs", "play", "Jobs", "runs coverage"),
        MenuEntry("explorations", "explorations", "Explorations", "trials tuning"),
        MenuEntry("alerts", "warn", "Alerts", "incidents acknowledge mute resolve pagerduty on-call"),
        MenuEntry("failures", "cross", "Failures", "errors issues causes crashes compiler try again"),
        MenuEntry("queues", "clock", "Queues", "workers waiting misses collect"),
        MenuEntry("environments", "retry", "Environments", "versions declare artifacts"),
        MenuEntry("notifications", "bell", "Notifications", "inbox"),
    )),
    ("Money", (
        MenuEntry("billing", "coin", "Billing", "prices charges credit pay", _bills),
        MenuEntry("billing-ledger", "ledger", "Ledger", "charges payments", _bills),
    )),
    ("Administration", (
        MenuEntry("people", "user", "People", "members roles invitations organisations", _administers),
        MenuEntry("keys", "key", "API keys", "tokens", _administers),
        MenuEntry("webhooks", "upload", "Webhooks", "endpoints deliveries", _bills),
        MenuEntry("audit", "log", "Audit log", "who did what", _administers),
        MenuEntry("growth", "growth", "Growth", "disk room", _operates),
    )),
)  # fmt: skip
"""The four groups, in order; one without an entry for the reader is left out."""

FURTHER: tuple[MenuEntry, ...] = (
    MenuEntry(
        "environments-compare", "retry", "Compare two environments", "versions regressions",
        within="environments",
    ),
    MenuEntry("billing-rules", "coin", "Prices", "rules tariff", _prices),
    MenuEntry("collect", "clock", "Misses that are not explored", "collect queue postponed discarded"),
    MenuEntry("subscriptions", "bell", "Subscriptions", "watch alerts notifications"),
    MenuEntry("definitions", "docs", "What every figure means", "definitions"),
    MenuEntry("begin", "play", "First steps", "onboarding lookup sample curl"),
    MenuEntry("own-keys", "key", "Your API keys", "tokens", _belongs),
    MenuEntry("docs", "docs", "The whole API", "rest openapi schema swagger documentation"),
    MenuEntry("account", "user", "Account", "sessions password"),
)  # fmt: skip
"""Pages that stand within another's section."""

ACTIONS: tuple[MenuEntry, ...] = (
    MenuEntry("models", "upload", "Add a model", "upload onnx sample new"),
    MenuEntry("kernel-submit", "upload", "Submit a kernel", "new hand-written", _submits),
    MenuEntry("billing-rule-new", "coin", "New price", "rule charge", _prices),
)
"""What can be begun, by name."""


def groups_for(viewer: Viewer) -> list[tuple[str, list[MenuEntry]]]:
    """The navigation of one reader."""
    made = [(title, [one for one in entries if one.shown(viewer)]) for title, entries in MENU]
    return [(title, entries) for title, entries in made if entries]


@lru_cache(maxsize=256)
def section_of(path: str) -> str:
    """The page of the navigation that is open at this address, or whose section is; "" where none is."""
    if path == address("overview"):
        return "overview"
    within = {one.page: one.page for _, entries in MENU for one in entries if one.page != "overview"}
    within |= {one.page: one.within for one in FURTHER if one.within}
    found = [page for page in within if path.startswith(address(page))]
    # The closest: the ledger's address begins as billing's does.
    return within[max(found, key=lambda page: len(address(page)))] if found else ""


def entries_for(viewer: Viewer, asked: list[str]) -> list[MenuEntry]:
    """Every page that this reader may open and that these words find."""
    every = [one for _, entries in MENU for one in entries] + list(FURTHER)
    return _found(every, viewer, asked)


def actions_for(viewer: Viewer, asked: list[str]) -> list[MenuEntry]:
    """Every action that this reader may begin and that these words find."""
    return _found(ACTIONS, viewer, asked)


def _found(every: Iterable[MenuEntry], viewer: Viewer, asked: list[str]) -> list[MenuEntry]:
    return [one for one in every if one.shown(viewer) and one.matches(asked)]
