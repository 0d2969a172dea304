"""Cells with several values in the table of implementations. Made here and not by templates: a page has some
hundred of them, each of which would be rendered by itself."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.safestring import SafeString

from catalog.charging import Terms
from catalog.models import SHARED
from catalog.selectors.detail import RankedImplementation
from dashboard.templatetags.opatlas import badge
from dashboard.web import wording
from dashboard.web.addresses import address
from dashboard.web.markup import filled
from tuning.statistics.comparing import Comparison


@dataclass(frozen=True)
class MadeRow:
    """An implementation, how it compares with the best, and what it costs."""

    made: RankedImplementation
    against: Comparison | None
    terms: Terms | None
    operator_key: str
    may_bill: bool  # who looks
    chosen: bool  # its code is shown below
    leads: bool = False  # the best of its method


def rank(row: MadeRow) -> SafeString | str:
    if row.made.rank is None:
        return SafeString('<span class="faint" title="Another candidate of this route is faster">–</span>')
    return str(row.made.rank + 1) if row.made.rank else badge("hit", "best")


def variant(row: MadeRow) -> SafeString:
    """Its label; whether it leads its method, and is not shared; its price."""
    made, price = row.made.implementation, row.terms
    leads = filled(' <span class="chip">best {}</span>', made.method) if row.leads else ""
    private = "" if made.scope == SHARED else SafeString(' <span class="chip">private</span>')
    costs: SafeString | str = ""
    if price:
        held = filled("{} ", badge("withheld")) if price.withheld else ""
        link = '<a href="{}">{}</a>'
        pay = filled(f" {link}", price.pay_url, "Pay" if price.withheld else "Price") if row.may_bill else ""
        costs = filled('<span class="sub">{}{}{}</span>', held, price.sentence, pay)
    return filled("{}{}{}{}", made.label, leads, private, costs)


def against(row: MadeRow) -> SafeString | str:
    """The best itself has nothing to say here."""
    found = row.against
    if found is None:
        return ""
    if found.verdict == "incomparable":
        return SafeString('<span class="faint" title="Timed against another default">not comparable</span>')
    if row.made.equal:
        said: SafeString | str = "equal"
    elif found.verdict == "same":
        said = "no difference"
    else:
        said = filled('<span class="{}">{}</span>', found.verdict, wording.ratio(found.factor))
    bounds = wording.ratio(found.low), wording.ratio(found.high)
    return filled('{}<span class="sub">{} – {}</span>', said, *bounds)


def artifact(row: MadeRow) -> SafeString:
    """Its kind and the beginning of its name; where it was measured, and how long it takes to prepare."""
    found, m = row.made.implementation.artifact, row.made.measurement
    title = found.sha256
    if m:
        prepared = f"{wording.duration_us(m.prepare_us)}, {wording.quantity(m.prepare_bytes, 'B')}"
        title += f", measured in a sandbox ({wording.sandbox(m.tier)}); prepared in {prepared}"
    shown = '<span title="{}">{}<span class="sub mono">{}</span></span>'
    return filled(shown, title, found.kind, found.sha256[:8])


def code(row: MadeRow) -> SafeString:
    made = row.made.implementation
    link = '<a class="button small" href="{}">Code<span class="visually-hidden"> of {}</span></a>'
    return filled(link, address("operator-code", row.operator_key, made.pk), made)
