"""Prices in words."""

from __future__ import annotations

from dashboard.billing.models import Mode, PriceRule
from dashboard.billing.preview import Preview
from dashboard.billing.pricing import PriceTier
from dashboard.web.wording import money


def what(rule: PriceRule) -> str:
    """Which hits a rule is about: ``each compiler hit of Conv (route tvm)``."""
    asked = rule.asked[::-1]
    before = [f"{value} " for one, value in asked if not one.said]
    after = [one.said.format(value) for one, value in asked if one.said]
    return "".join(["each ", *before, "hit", *after])


def tier(one: PriceTier, currency: str) -> str:
    """``0.01 EUR, and 2.00 EUR for each second that it saves``."""
    hit = money(one.per_hit_micros, currency) if one.per_hit_micros else ""
    saved = money(one.per_saved_second_micros, currency) if one.per_saved_second_micros else ""
    if saved:
        saved += " for each second that it saves"
    return f"{hit}, and {saved}" if hit and saved else hit or saved or "nothing"


def price(rule: PriceRule) -> str:
    """A rule's whole price, without what it is for."""
    first, *further = rule.price.tiers
    parts = [tier(first, rule.currency)]
    parts += [f"from the {ordinal(one.from_hit)} of a month {tier(one, rule.currency)}" for one in further]
    if rule.price.cap_operator_month_micros is not None:
        cap = money(rule.price.cap_operator_month_micros, rule.currency)
        parts.append(f"at most {cap} a month for one operator")
    if rule.price.cap_month_micros is not None:
        parts.append(f"at most {money(rule.price.cap_month_micros, rule.currency)} a month in all")
    return "; ".join(parts)


def ordinal(number: int) -> str:
    """``501st``, ``1,012th``."""
    last = number % 10
    ending = "th" if number % 100 // 10 == 1 else {1: "st", 2: "nd", 3: "rd"}.get(last, "th")
    return f"{number:,}{ending}"


def sentence(rule: PriceRule) -> str:
    """The whole rule: what, how much, whether it is withheld, and what of the default itself."""
    which = f"{what(rule)[0].upper()}{what(rule)[1:]}"
    if rule.mode == Mode.FREE:
        return f"{which} is free."
    if rule.charges_default:
        which += ", the default itself too,"
    text = f"{which} costs {price(rule)}"
    if rule.mode == Mode.WITHHOLD:
        text += "; withheld until credit or a plan covers it"
    return f"{text}." if rule.charges_default else f"{text}. The default itself is free."


def would_have_cost(found: Preview) -> str:
    """``in October 2026 it would have charged 0.03 EUR for 3 hits of 1 organisation``, as the only price."""
    about = "about " if found.is_estimate else ""
    hits = f"{found.hits:,} hit{'' if found.hits == 1 else 's'}"
    whose = f"{found.organisations:,} organisation{'' if found.organisations == 1 else 's'}"
    charged = money(found.micros, found.currency)
    return f"in {found.month:%B %Y} it would have charged {about}{charged} for {hits} of {whose}"
