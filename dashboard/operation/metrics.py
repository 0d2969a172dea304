"""Prometheus metrics: this process's counters, and gauges from the database (the same in every process). With
PROMETHEUS_MULTIPROC_DIR set, several web processes of one machine are counted together."""

from __future__ import annotations

import hmac
import ipaddress
import os
from functools import cache

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from dashboard.conf import conf

OWN = CollectorRegistry()

_requests = Counter(
    "opatlas_http_requests_total", "Requests answered.", ["method", "route", "status"], registry=OWN
)
_seconds = Histogram(
    "opatlas_http_request_seconds",
    "Time to answer a request.",
    ["route"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1, 2.5, 5, 10, 30),
    registry=OWN,
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def observe(method: str, route: str, status: int, took_s: float) -> None:
    """Count one request. Label values come from the URL table, so that callers cannot add any."""
    counter, seconds = _of(method if method in _METHODS else "other", route, status)
    counter.inc()
    seconds.observe(took_s)


@cache
def _of(method: str, route: str, status: int) -> tuple[Counter, Histogram]:
    """Looking labels up costs more than counting."""
    return _requests.labels(method, route, str(status)), _seconds.labels(route)


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Everything, in Prometheus's text form; to who knows OPATLAS_METRICS_TOKEN, or from this machine."""
    if not may_read(request):
        return HttpResponse(
            "Metrics are for Bearer tokens that are known.\n", status=403, content_type="text/plain"
        )
    from dashboard.operation.gauges import DatabaseCollector

    registry = CollectorRegistry()
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        text = generate_latest(registry)
    else:
        text = generate_latest(OWN)
    database = CollectorRegistry()
    database.register(DatabaseCollector())
    return HttpResponse(text + generate_latest(database), content_type=CONTENT_TYPE_LATEST)


def may_read(request: HttpRequest) -> bool:
    """With a token set, whoever shows it; without one, callers on this machine without a proxy between."""
    token = conf().metrics_token
    if token:
        given = request.META.get("HTTP_AUTHORIZATION", "")
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
    if "HTTP_X_FORWARDED_FOR" in request.META or "HTTP_FORWARDED" in request.META:
        return False
    try:
        return ipaddress.ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback
    except ValueError:
        return False
