"""The addresses of every page, found through the URL resolver, with arguments from the database in use.

A new page is covered by all that goes through these (query counts, axe, CSP, telephones, the bench) as soon
as its line is in a ``urls.py``; where its address has arguments, ``ARGUMENTS`` must say how to find them.
``python -m tests.dashboard.examples`` prints them as JSON, for the bench: its database is another process's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from django.apps import apps
from django.db.models import Count
from django.urls import NoReverseMatch, URLPattern, URLResolver, get_resolver, reverse

NOT_PAGES = ("admin/", "api/", "^api/", "^static")
"""Beginnings of addresses that are not the dashboard's own."""

NO_PAGES = frozenset({"logout", "csp-report", "end-sessions"})
"""Addresses that are there for programs, or that end the session of who looks."""


class NoExample(AssertionError):
    """A page whose address has arguments, and no entry in ARGUMENTS."""


def page_paths(variants: bool = False) -> dict[str, str]:
    """Name → address of everything that answers GET; with ``variants``, heavy forms of the pages too."""
    found = {}
    for name, arguments in _named(get_resolver()):
        if name in NO_PAGES:
            continue
        if not arguments:
            found[name] = reverse(name)
            continue
        if name not in ARGUMENTS:
            if _only_post(name, arguments):
                continue
            raise NoExample(
                f"tests/dashboard/examples.py: ARGUMENTS lacks {name!r} ({', '.join(arguments)})."
            )
        for suffix, values in _examples(name):
            found[name + suffix] = reverse(name, kwargs=values)
    if variants:
        found |= dict(_variants(found))
    return found


def _named(resolver: URLResolver, prefix: str = "", space: str = "") -> Iterator[tuple[str, list[str]]]:
    """(name, arguments) of the dashboard's own addresses, those of included applications too."""
    for entry in resolver.url_patterns:
        text = prefix + str(entry.pattern)
        if text.startswith(NOT_PAGES):
            continue
        if isinstance(entry, URLResolver):
            inner = f"{space}{entry.namespace}:" if entry.namespace else space
            yield from _named(entry, text, inner)
        elif entry.name:
            yield space + entry.name, _arguments(resolver, entry)


def _arguments(resolver: URLResolver, entry: URLPattern) -> list[str]:
    return [*resolver.pattern.converters, *entry.pattern.converters]


def _only_post(name: str, arguments: list[str]) -> bool:
    """Whether it is an action: what answers nothing but POST says so before it looks at its arguments."""
    from django.contrib.auth.models import AnonymousUser
    from django.test import RequestFactory
    from django.urls import resolve

    from catalog.models import Role
    from catalog.viewing import MAY, Viewer

    try:
        address = reverse(name, kwargs=dict.fromkeys(arguments, 1))
    except NoReverseMatch:
        return False
    match = resolve(address)
    allowed = getattr(match.func, "allowed_methods", None)
    if allowed is not None:
        return "GET" not in allowed
    request = RequestFactory().get(address)
    request.user = AnonymousUser()
    request.viewer = Viewer("nobody", {}, MAY[Role.ADMIN])  # type: ignore[attr-defined]
    try:
        return match.func(request, *match.args, **match.kwargs).status_code == 405
    except Exception:  # it began to work: it is a page
        return False


def _examples(name: str) -> list[tuple[str, dict[str, Any]]]:
    """(suffix of the name, arguments) of what the database has; nothing where it has no such row."""
    found = ARGUMENTS[name]() or {}
    several = all(key == "" or key.startswith("-") for key in found)
    values = found if several else {"": found}
    return [(suffix, given) for suffix, given in values.items() if given]


def _row(queryset: Any, **names: str) -> dict[str, Any] | None:
    """Arguments from the first row: ``key="operator__key"``."""
    row = queryset.values(*names.values()).first()
    return {argument: row[field] for argument, field in names.items()} if row else None


def _operators() -> dict[str, dict[str, Any] | None]:
    from catalog.models import Best, JobOperator, Miss

    busiest = JobOperator.objects.values("operator__key").annotate(n=Count("pk")).order_by("-n", "operator")
    manual = Best.objects.filter(rank=0, method="manual").order_by("pk")
    return {
        "": _row(busiest, key="operator__key"),
        "-manual": _row(manual, key="operator__key"),
        "-missed": _row(Miss.objects.filter(state="waiting").order_by("pk"), key="operator__key"),
    }


def _code() -> dict[str, Any] | None:
    from catalog.models import Best

    best = Best.objects.order_by("operator", "rank").exclude(route="eager")
    return _row(best, key="operator__key", implementation_id="implementation")


def _explorations() -> dict[str, dict[str, Any] | None]:
    from tuning.models import Exploration

    rows = Exploration.objects.order_by("-stage", "pk")
    return {
        suffix: _row(rows.filter(state=state), pk="pk")
        for suffix, state in (("", "running"), ("-done", "done"), ("-dead", "dead"), ("-queued", "queued"))
    }


def _models() -> dict[str, Any] | None:
    from catalog.models import ModelOperator

    return _row(ModelOperator.objects.values("model").annotate(n=Count("pk")).order_by("-n"), pk="model")


def _jobs() -> dict[str, Any] | None:
    from catalog.models import JobOperator

    return _row(JobOperator.objects.values("job").annotate(n=Count("pk")).order_by("-n", "job"), pk="job")


def _kernel() -> dict[str, Any] | None:
    from tuning.kernels.models import Kernel

    return _row(Kernel.objects.annotate(n=Count("versions")).order_by("-n", "pk"), pk="pk")


def _version() -> dict[str, Any] | None:
    from tuning.kernels.models import KernelVersion

    rows = KernelVersion.objects.annotate(n=Count("evaluations")).order_by("-n", "pk")
    return _row(rows, pk="kernel", number="number")


def _rows_of(model: str, order: str = "pk", **names: str) -> Callable[[], dict[str, Any] | None]:
    """Arguments from the first row of a table, "billing.PriceRule"."""
    return lambda: _row(apps.get_model(model).objects.order_by(order), **names)


def _unsubscribing() -> dict[str, Any] | None:
    from dashboard.notifications.channels.email import unsubscribing
    from dashboard.notifications.models import Subscription

    row = Subscription.objects.order_by("pk").first()
    return row and {"token": unsubscribing.path_for(row.user_id, [row.pk]).rstrip("/").rsplit("/", 1)[1]}


def _invitation() -> dict[str, Any] | None:
    from django.core import signing

    from catalog.models import Invitation
    from catalog.people import members as people

    row = Invitation.objects.filter(accepted_at=None, withdrawn_at=None).order_by("-pk").first()
    return row and {"token": signing.dumps({"invitation": row.nonce}, salt=people._SALT)}


def _renewing() -> dict[str, Any] | None:
    from django.contrib.auth.models import User
    from django.contrib.auth.tokens import default_token_generator
    from django.utils.http import urlsafe_base64_encode

    user = User.objects.order_by("pk").first()
    return user and {
        "uidb64": urlsafe_base64_encode(str(user.pk).encode()),
        "token": default_token_generator.make_token(user),
    }


def _raw() -> dict[str, Any] | None:
    found = _code()
    return found and found | {"part": "source"}


ARGUMENTS: dict[str, Callable[[], Any]] = {
    "operator": _operators,
    "operator-state": lambda: _operators()["-missed"],  # elsewhere it says that there is nothing to wait for
    "operator-code": _code,
    "operator-raw": _raw,
    "operator-file": lambda: None,  # a download from the artifact store, which no made-up catalogue has
    "billing-entry": _rows_of("billing.LedgerEntry", order="amount_micros", pk="pk"),  # a charge first
    "billing-of": _rows_of("catalog.Organisation", pk="pk"),
    "billing-rule": _rows_of("billing.PriceRule", line="line"),
    "billing-rule-end": _rows_of("billing.PriceRule", line="line"),
    "billing-spending-end": _rows_of("billing.JobSpending", pk="pk"),
    "webhook-endpoint": _rows_of("webhooks.Endpoint", pk="pk"),
    "webhook-act": lambda: None,  # leads to the endpoint's page
    "webhook-delivery": _rows_of("webhooks.Delivery", pk="pk"),
    "notification": _rows_of("notifications.Notification", pk="pk"),
    "subscription": _rows_of("notifications.Subscription", pk="pk"),
    "notification-unsubscribe": _unsubscribing,
    "invited": _invitation,
    "renew": _renewing,
    "exploration": _explorations,
    "alert": _rows_of("notifications.Alert", pk="pk"),
    "failure": _rows_of("tuning.FailureGroup", order="-trials", pk="pk"),
    "model": _models,
    "upload": _rows_of("uploads.Upload", pk="pk"),
    "job": _jobs,
    "kernel": _kernel,
    "kernel-edit": _kernel,
    "kernel-version": _version,
    "kernel-standing": _version,
}
"""Name of a page → its arguments, or several by suffix; None where the database has no such row."""

VARIANTS: dict[str, dict[str, str]] = {
    "overview": {"90d": "?range=90d", "24h": "?range=24h"},
    "operators": {
        "by-jobs": "?sort=-jobs", "by-speedup": "?sort=-speedup", "by-asked": "?sort=-asked",
        "by-time": "?sort=-time", "by-name": "?sort=name", "search": "?q=conv+512", "hits": "?status=hit",
        "waiting": "?status=waiting", "manual": "?method=manual&sort=-jobs", "page2": "?page=2",
        "far": "?page=40",
    },
    "explorations": {
        "done": "?state=done", "queued": "?state=queued", "failed": "?state=dead", "page2": "?page=2",
    },
    "operator": {"90d": "?range=90d"},
    "methods": {"90d": "?range=90d", "by-route": "?by=route"},
    "jobs": {"page2": "?page=2", "90d": "?range=90d"},
    "collect": {"waiting": "?state=waiting", "postponed": "?state=postponed", "page2": "?page=2"},
    "audit": {"90d": "?range=90d", "page2": "?range=90d&page=2"},
    "billing": {"90d": "?range=90d"},
    "billing-ledger": {"90d": "?range=90d", "page2": "?range=90d&page=2"},
    "notifications": {"page2": "?page=2"},
    "job": {"page2": "?page=2"},
    "model": {"page2": "?page=2"},
    "models": {"page2": "?page=2"},
}  # fmt: skip
"""Heavy forms of a page: what follows its address."""


def _variants(found: dict[str, str]) -> Iterator[tuple[str, str]]:
    for name, forms in VARIANTS.items():
        if name in found:
            for form, query in forms.items():
                yield f"{name} {form}", found[name] + query


def main() -> None:
    """Print name → address as JSON, for the database of the environment's settings."""
    import django

    django.setup()
    print(json.dumps(page_paths(variants=True)))


if __name__ == "__main__":
    main()
