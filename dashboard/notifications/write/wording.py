"""What people are told, in one plain sentence that any device can show or speak. PURE.

At most 160 characters, no markup, no symbols that a voice stumbles over: "512×512" is "512 by 512".
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from catalog.default_names import default_name

MOST_CHARACTERS = 160
_NAME_CHARACTERS = 64
_MINUTE_S, _HOUR_S = 60, 3600


def spoken(summary: str, most: int = _NAME_CHARACTERS) -> str:
    """An operator's summary to be read aloud: ``MatMul 512×512, 512×8 float32`` → ``MatMul 512 by 512, 512
    by 8 float32``; cut after a whole word where it is longer than ``most``."""
    return shortened(re.sub(r"\s*[×x](?=\s*\d)", " by ", plain(summary)), most)


def plain(text: str) -> str:
    """One line of text without control characters or markup's brackets."""
    return " ".join(re.sub(r"[\x00-\x1f\x7f<>]", " ", text).split())


def shortened(text: str, most: int) -> str:
    """At most that many characters, cut after a word, the cut marked."""
    if len(text) <= most:
        return text
    cut = text[: most - 1]
    whole = cut.rsplit(" ", 1)[0] if " " in cut[most // 2 :] else cut
    return whole.rstrip(" ,;:.") + "…"


def over_default(ratio: float | None, default: str) -> str:
    """``2.1 times the default (PyTorch eager)``; ``as fast as the default (PyTorch eager)``.

    ``default``: the route that it was timed in turns with; empty where none was noted.
    """
    if ratio is None:
        return "not timed"
    times_it = "as fast as" if 0.985 <= ratio <= 1.015 else f"{number(ratio)} times"
    return f"{times_it} the {default_name(default)}"


def number(value: float) -> str:
    """Two digits, as one says them: ``2.1``, ``14``, ``0.84``."""
    if value >= 9.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 0.95 else f"{value:.2g}"


def duration(seconds: float) -> str:
    """``4 seconds``, ``2 minutes``, ``1 hour``: one unit, written out."""
    if seconds < 1:
        return "less than a second"
    for size, unit in ((_HOUR_S, "hour"), (_MINUTE_S, "minute"), (1, "second")):
        if seconds >= size:
            count = round(seconds / size)
            return f"{count} {unit}{'' if count == 1 else 's'}"
    raise AssertionError  # a second is the smallest


def times(count: int) -> str:
    """``once``, ``twice``, ``1,204 times``."""
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def hit(operator: str, *, route: str, ratio: float | None, default: str, job: str, count: int = 1) -> str:
    """A hit was served, or so many of them."""
    to = f"job {shortened(plain(job), 40)}" if job else "a job without a name"
    often = f" {times(count)}" if count > 1 else ""
    return _sentence(operator, f"served to {to}{often} by {route}, {over_default(ratio, default)}")


def best_changed(
    operator: str, *, route: str, ratio: float | None, default: str, before: str, gain: float | None
) -> str:
    """Somebody else is the fastest. ``before``: the route it was; ``gain``: times faster than that."""
    if not before:
        return _sentence(operator, f"{route} is its first implementation, {over_default(ratio, default)}")
    if gain is None:
        ahead = ""
    elif gain >= 1.005:
        ahead = f" and {_by(gain)} faster than {_other(before, route)}"
    elif gain <= 0.995:
        ahead = f", {_by(1 / gain)} slower than {_other(before, route)} was"
    else:
        ahead = f", as fast as {_other(before, route)}"
    return _sentence(operator, f"{route} is now fastest, {over_default(ratio, default)}{ahead}")


def nothing_left(operator: str) -> str:
    """The best was withdrawn, and no other is known."""
    return _sentence(operator, "no implementation is left, it is explored again")


def first_result(operator: str, *, route: str, ratio: float | None, default: str, after_s: float) -> str:
    """The first verified result of an exploration."""
    what = f"{route}, {over_default(ratio, default)}" if route else "something to serve"
    return _sentence(operator, f"first result after {duration(after_s)}: {what}")


def explored(
    operator: str, *, state: str, route: str, ratio: float | None, default: str, reason: str = ""
) -> str:
    """An exploration ended: done, dead, unsupported or discarded."""
    if state == "done" and route:
        return _sentence(operator, f"explored, {route} is fastest, {over_default(ratio, default)}")
    ended = {
        "done": "explored, and nothing verified came of it",
        "dead": "exploration failed",
        "unsupported": "not supported",
        "discarded": "exploration was given up",
    }.get(state, f"exploration ended as {state}")
    return _sentence(operator, f"{ended}: {reason}" if reason else ended)


def withdrawn(
    operator: str, *, route: str, failed: bool, reason: str, now: str, ratio: float | None, default: str
) -> str:
    """An implementation was revoked by somebody, or found to fail. ``now``: the route that serves instead."""
    what = f"{route} {'failed' if failed else 'was withdrawn'}"
    instead = f"now {now}, {over_default(ratio, default)}" if now else "nothing is served now"
    told = _sentence(operator, f"{what}, {instead}")
    because = plain(reason).rstrip(".")
    if because and len(told) + len(because) + 2 <= MOST_CHARACTERS:
        return f"{told[:-1]}. {because[:1].upper()}{because[1:]}."
    return told


def silent(capability: str, *, workers: Sequence[str], waiting: int) -> str:
    """Nobody works for a target any more, though nobody said goodbye."""
    who = workers[0] if len(workers) == 1 else f"all {len(workers)} workers"
    waits = "1 exploration waits" if waiting == 1 else f"{waiting:,} explorations wait"
    lost = f"{shortened(plain(who), 60)} fell silent and there is no other"
    said = f"{plain(capability)}: {lost}, {waits if waiting else 'nothing waits yet'}."
    return shortened(said, MOST_CHARACTERS)


def failing(capability: str, *, route: str, trials: int, operators: int, reason: str) -> str:
    """No trial of a route comes to anything any more."""
    said = f"{plain(capability)}: {route} failed on all of its last {trials} trials of {operators} operators"
    because = plain(reason).rstrip(".")
    return shortened(f"{said}: {because}" if because else said, MOST_CHARACTERS - 1).rstrip(".") + "."


def disturbed(capability: str, *, noisy: int, trials: int) -> str:
    """Times do not hold still on a target's machines."""
    said = f"{noisy} of the last {trials} trials could not be timed, the machine is too disturbed"
    return shortened(f"{plain(capability)}: {said}.", MOST_CHARACTERS)


def queue_old(capability: str, *, waiting: int, oldest_s: float) -> str:
    """First results wait for longer than they should."""
    waits = "1 first result waits" if waiting == 1 else f"{waiting:,} first results wait"
    said = f"{plain(capability)}: {waits}, the oldest since {duration(oldest_s)}"
    return shortened(f"{said}.", MOST_CHARACTERS)


def hits_falling(rate: float, usual: float, lookups: int) -> str:
    """Fewer lookups hit than usual."""
    return f"{rate:.0%} of the last {lookups:,} lookups hit, {usual:.0%} did in the week before.".replace(
        "%", " per cent"
    )


def regressed(
    operator: str, *, route: str, ratio: float, default: str, before: str, ratio_before: float
) -> str:
    """What serves now is slower than what it replaced."""
    was = f"{before} was {number(ratio_before)} times"
    return _sentence(operator, f"slower than before, {route} is {over_default(ratio, default)}, {was}")


def new_failure(reason: str, *, routes: Sequence[str]) -> str:
    """Something fails that never did."""
    who = ", ".join(routes[:3]) + (" and others" if len(routes) > 3 else "")
    said = f"{who} failed for a new cause: {plain(reason)}"
    return shortened(said, MOST_CHARACTERS - 1).rstrip(".") + "."


def step_failing(step: str, said: str, *, failures: int, for_s: float) -> str:
    """Periodic work does not get done."""
    told = f"{plain(step)} fails since {duration(for_s)}, {failures:,} times in a row"
    return _with_reason(f"{told[:1].upper()}{told[1:]}", said)


def rows_set_aside(step: str, said: str, *, rows: int) -> str:
    """Periodic work goes on without some of its rows."""
    which = "1 row is" if rows == 1 else f"{rows:,} rows are"
    return _with_reason(f"{which} left aside while {plain(step)}", said)


def _with_reason(told: str, reason: str) -> str:
    return shortened(f"{told}: {plain(reason)}".rstrip("."), MOST_CHARACTERS - 1).rstrip(".") + "."


def spend(left_micros: int, currency: str, spent_micros: int, days: int) -> str:
    """Credit ends soon, as it is spent now."""
    left, spent = max(left_micros, 0) / 1e6, spent_micros / 1e6
    has = f"{left:,.2f} {currency} of credit are left" if left else "No credit is left"
    return f"{has}, {spent:,.2f} {currency} were spent within {days} days."


def spend_sudden(day_micros: int, hour_micros: int, currency: str, *, usual: float) -> str:
    """Far more is charged than usual; ``usual``: a day's mean, 0 where nothing was charged before."""
    day, hour, mean = (micros / 1e6 for micros in (day_micros, hour_micros, usual))
    charged = f"{day:,.2f} {currency} were charged within a day, {hour:,.2f} of them in the last hour"
    if not usual:
        return f"{charged}; nothing was charged before."
    return f"{charged}: {number(day / mean)} times a usual day ({mean:,.2f} {currency})."


def over(text: str) -> str:
    """What said that something is wrong, once it is no longer."""
    return shortened(f"Resolved: {text}", MOST_CHARACTERS)


def test(title: str) -> str:
    """What a test message says."""
    return shortened(f"A test for {plain(title)}: messages arrive here.", MOST_CHARACTERS)


def subject_of(texts: Sequence[str], digest: str) -> str:
    """A message's subject: the one sentence, or how many there are and the first."""
    if len(texts) == 1:
        return shortened(texts[0], 120)
    when = {"hourly": " this hour", "daily": " today"}.get(digest, "")
    return shortened(f"Opatlas: {len(texts)} messages{when}. {texts[0]}", 120)


def _by(gain: float) -> str:
    """``12 per cent``, from twice on ``2.4 times``: what stands before "faster than"."""
    return f"{number(gain)} times" if gain >= 2 else f"{(gain - 1) * 100:.0f} per cent"


def _other(before: str, route: str) -> str:
    return f"the {before} before it" if before == route else before


def _sentence(operator: str, rest: str) -> str:
    """``<operator>: <rest>.`` within the bound; what is long gives way on both sides."""
    rest = plain(rest).rstrip(".")
    name = spoken(operator, max(min(_NAME_CHARACTERS, MOST_CHARACTERS - 3 - len(rest)), 24))
    return shortened(f"{name}: {rest}", MOST_CHARACTERS - 1).rstrip(".") + "."
