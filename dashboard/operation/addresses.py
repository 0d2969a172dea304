"""Whose request it is, behind proxies that we know."""

from __future__ import annotations

from django.http import HttpRequest

from dashboard.conf import conf


def client_address(request: HttpRequest) -> str:
    """The client's address. With OPATLAS_PROXIES=n it is what the outermost of n trusted proxies saw, the
    n-th from the right of X-Forwarded-For; without, headers are not believed."""
    proxies = conf().proxies
    if proxies > 0:
        hops = [part.strip() for part in request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")]
        if len(hops) >= proxies and hops[-proxies]:
            return str(hops[-proxies])[:64]
    return str(request.META.get("REMOTE_ADDR") or "")[:64]
