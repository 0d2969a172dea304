"""Whose request it is: what proxies that we know say, and nobody else."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from catalog.people.addresses import address_in, scheme_in
from tests.databases import ROOT

PROXY = "10.0.0.1"
FOLDED = ("X-Forwarded-For", "X_Forwarded_For", "X-Forwarded_For", "x_forwarded-for")


def said(forwarded: str, **more: str) -> dict[str, str]:
    return {"REMOTE_ADDR": PROXY, "HTTP_FORWARDED": forwarded, "wsgi.url_scheme": "http", **more}


@pytest.mark.parametrize(
    ("forwarded", "address", "scheme"),
    [
        ("for=192.0.2.7", "192.0.2.7", "http"),
        ("For=192.0.2.7;Proto=HTTPS;by=10.0.0.1", "192.0.2.7", "https"),
        ('proto=https;for="192.0.2.7:4711"', "192.0.2.7", "https"),
        ('for="[2001:db8::1]:4711"', "2001:db8::1", "http"),
        ("for=9.9.9.9, for=192.0.2.7", "192.0.2.7", "http"),
        ('for="9.9.9.9, for=8.8.8.8", for=192.0.2.7', "192.0.2.7", "http"),
        ('for=9.9.9.9;proto=https;x=", for=192.0.2.7;proto=http', "192.0.2.7", "http"),
        ('for=9.9.9.9;x=", for="[2001:db8::1]"', "2001:db8::1", "http"),
        ('for=", for=192.0.2.7', "192.0.2.7", "http"),
        ("for=192.0.2.7, ", "192.0.2.7", "http"),
        ("for=unknown;proto=https", "unknown", "https"),  # and not the proxy's own address
        ("for=_hidden", "unknown", "http"),
        ("proto=ftp", "unknown", "http"),
        ('for="192.0.2.7', "unknown", "http"),
        ("", PROXY, "http"),
        ("for=" * 1000, "unknown", "http"),
    ],
)
def test_what_the_nearest_proxy_says_counts(
    configure: Any, forwarded: str, address: str, scheme: str
) -> None:
    assert (address_in(said(forwarded)), scheme_in(said(forwarded))) == (PROXY, "http"), "no proxy is known"
    configure(proxies=1)
    assert (address_in(said(forwarded)), scheme_in(said(forwarded))) == (PROXY, "http"), "no header is named"
    configure(proxies=1, proxy_header="Forwarded")
    assert (address_in(said(forwarded)), scheme_in(said(forwarded))) == (address, scheme)


def test_of_two_proxies_the_outer_one_counts(configure: Any) -> None:
    configure(proxies=2, proxy_header="Forwarded")
    assert address_in(said("for=9.9.9.9, for=192.0.2.7;proto=https, for=10.0.0.2")) == "192.0.2.7"
    assert scheme_in(said("for=9.9.9.9, for=192.0.2.7;proto=https, for=10.0.0.2")) == "https"
    assert address_in(said("for=192.0.2.7")) == PROXY, "it did not come by both"


def test_another_header_is_not_believed(configure: Any) -> None:
    more = {"HTTP_X_FORWARDED_FOR": "9.9.9.9", "HTTP_X_FORWARDED_PROTO": "https"}
    configure(proxies=1, proxy_header="Forwarded")
    assert (address_in(said("", **more)), scheme_in(said("", **more))) == (PROXY, "http")
    configure(proxies=1, proxy_header="X-Forwarded-For")
    assert (address_in(said("for=192.0.2.7", **more)), scheme_in(said("", **more))) == ("9.9.9.9", "https")


SEEN = """
from catalog.people.addresses import address_in, scheme_in
def application(environ, start_response):
    start_response("200 OK", [])
    return [f"{address_in(environ)} {scheme_in(environ)}".encode()]
"""


@pytest.mark.slow
def test_behind_granian_no_name_that_folds_to_the_same_variable_counts(tmp_path: Path) -> None:
    """granian writes X_Forwarded_For and X-Forwarded-For into one variable, the last of them."""
    (tmp_path / "seen.py").write_text(SEEN)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "granian", "--interface", "wsgi", "--port", str(port)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    environment |= {"OPATLAS_PROXIES": "1", "OPATLAS_PROXY_HEADER": "Forwarded"}
    server = subprocess.Popen(
        [*command, "seen:application"], cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL
    )
    try:
        for name in FOLDED:
            for other in (name.replace("For", "Proto").replace("for", "proto"),):
                headers = {"Forwarded": "for=192.0.2.7", name: "9.9.9.9", other: "https"}
                assert _asked(port, headers) == "192.0.2.7 http", name
        assert _asked(port, {"X-Forwarded-For": "192.0.2.7"}) == "127.0.0.1 http"
    finally:
        server.terminate()
        server.wait(30)


def _asked(port: int, headers: dict[str, str]) -> str:
    for _ in range(600):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/", headers=headers)
            return connection.getresponse().read().decode()
        except ConnectionRefusedError:  # it starts
            time.sleep(0.1)
    raise AssertionError("granian does not start")
