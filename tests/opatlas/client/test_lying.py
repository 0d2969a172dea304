"""Services that are slow, garble or lie: the answer is empty, the job goes on, and nothing wrong is kept."""

from __future__ import annotations

import itertools
import json
import logging
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest

from opatlas.client import Client
from opatlas.client.loading.fetching import Refused
from opatlas.client.service import door, rest, wire
from opatlas.identity import Setting, detect_target
from opatlas.load import Manifest
from tests.opatlas.client.test_client import until
from tests.opatlas.load.kernels import add_operator

LONG_S = 60.0
"""More than an answer takes on any host; and so long a service that keeps a job waiting goes on with it."""
KEY = add_operator().key
BEST = {
    "implementation": 7, "artifact": "a" * 64, "median_us": 1.0, "spread_us": 0.1, "default_us": 2.0,
    "ratio_to_default": 2.0, "ratio_low": 1.9, "ratio_high": 2.1,
}  # fmt: skip


EVIDENCE = {"max_error": 0.1, "tolerance": 1.0, "tier": "T2", "environment": {"numpy": "2.4.6"}, "signer": ""}


def answer(**changes):
    item = {"key": KEY, "status": "hit", "best": BEST, "stage": "first", "final": True, "expires_s": 300.0}
    item |= changes
    place = {"target": detect_target().key, "setting": Setting(threads=1).key}
    return place | {"results": [item], "revoked": [], "entry_life_s": 300.0}


@pytest.fixture
def serve(tmp_path):
    """``serve(reply)``: a client of a service that answers every request by ``reply(handler)``."""
    running = []

    def start(reply, **options):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                server.bodies.append(
                    json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
                )
                server.asked.append((self.path, self.headers["Authorization"]))
                reply(self)

            do_GET = do_POST

            def log_message(self, *_):
                pass

            def send(self, body, status=200, **headers):
                self.send_response(status)
                given = {name.replace("_", "-"): value for name, value in headers.items()}
                for name, value in ({"Content-Length": str(len(body))} | given).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.asked, server.bodies, server.over = [], [], threading.Event()
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        options = {"timeout_s": LONG_S, "setting": Setting(threads=1), **options}
        client = Client(url, "secret", cache=tmp_path, **options)
        running.append((server, client))
        return client, server

    yield start
    for server, client in running:
        client.close()
        server.over.set()
        server.shutdown()
        server.server_close()


def says(document, **more):
    return lambda handler: handler.send(json.dumps(document).encode(), **more)


def test_an_honest_answer_is_taken(serve):
    client, _ = serve(says(answer(best=BEST | {"evidence": EVIDENCE})))
    told = client.lookup(add_operator())
    assert told.best == BEST | {"evidence": EVIDENCE}
    assert told.why_trusted == "error 0.1, up to 1 passes; proven in sandbox tier T2; with numpy 2.4.6"


def hang_up(handler):
    handler.connection.shutdown(socket.SHUT_RDWR)


LIES = {
    "no JSON": lambda handler: handler.send(b"<html>Welcome to the hotel's wireless network</html>"),
    "JSON of another service": says({"status": "ok"}),
    "a list": says([1, 2]),
    "nothing": lambda handler: handler.send(b""),
    "deeply nested": lambda handler: handler.send(b"[" * 100_000),
    "another operator": says(answer(key=add_operator(5).key)),
    "two answers to one question": says(answer() | {"results": answer()["results"] * 2}),
    "none": says(answer() | {"results": []}),
    "a hit without a best": says(answer(best=None)),
    "an unknown status": says(answer(status="maybe")),
    "a time that is none": says(answer(best=BEST | {"median_us": float("nan")})),
    "a time of text": says(answer(best=BEST | {"median_us": "fast"})),
    "a number beyond all floats": says(answer(expires_s=10**400)),
    "a hit of nothing": says(
        answer(best={name: value for name, value in BEST.items() if name != "implementation"})
    ),
    "an error that is none": says(answer(best=BEST | {"evidence": EVIDENCE | {"max_error": float("inf")}})),
    "an environment of nothing": says(answer(best=BEST | {"evidence": EVIDENCE | {"environment": None}})),
    "a signer of numbers": says(answer(best=BEST | {"evidence": EVIDENCE | {"signer": 5}})),
    "a revocation of nothing": says(answer() | {"revoked": ["\ud800"]}),
    "more revoked than anybody has": says(answer() | {"revoked": [f"{n:064x}" for n in range(20_000)]}),
    "a place in the list that is none": says(answer() | {"revoked_until": "'; DROP TABLE told; --" * 20}),
    "an address that is none": says(answer(best=BEST | {"artifact": "../../etc/passwd"})),
    "a price that is none": says(answer(price=[[1]])),
    "a reason that is none": says(answer(status="miss", best=None, reason={"a": 1})),
    "what comes next is no operator": says(answer() | {"next": [answer()["results"][0] | {"key": 1.5}]}),
    "nor is that": says(answer() | {"next": [answer()["results"][0] | {"key": "\ud800"}]}),
    "half a body": lambda handler: (handler.send(b"{}", Content_Length="100"), hang_up(handler)),
    "a dropped connection": lambda handler: hang_up(handler),
    "an error": says({"error": "We are sorry."}, status=503),
    "a redirect": lambda handler: handler.send(b"", status=302, Location="http://127.0.0.1:1/steal"),
    "somebody else's refusal": says({"detail": "forbidden"}, status=403),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_an_empty_answer(serve, lie, caplog, monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", LONG_S)
    client, server = serve(LIES[lie])
    with caplog.at_level(logging.WARNING, "opatlas"):
        empty = client.lookup(add_operator())
    assert not empty and empty.source == "nobody" and empty.reason
    assert len(caplog.records) == 1 and len(empty.reason) < 2100
    assert client.store.counts()["entries"] == 0, "nothing of it is kept"
    assert not client.lookup(add_operator()) and len(server.asked) <= 2, "it is left alone for a while"


def test_a_slow_service_costs_the_time_that_was_said_and_no_more(serve, monkeypatch):
    monkeypatch.setattr(door, "FIRST_PAUSE_S", LONG_S)
    client, server = serve(lambda handler: handler.server.over.wait(LONG_S), timeout_s=0.5)
    began = time.monotonic()
    assert not client.lookup(add_operator())
    assert time.monotonic() - began < LONG_S / 2
    until(lambda: server.asked)
    assert not client.lookup(add_operator())
    assert len(server.asked) == 1, "the next one costs nothing"


def drip(handler, piece):
    """Never silent for as long as a job waits."""
    end = time.monotonic() + LONG_S
    while time.monotonic() < end and not handler.server.over.wait(0.1):
        handler.wfile.write(piece)


DRIPS = {
    "go on": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "a header's end": (b"HTTP/1.1 200 OK\r\nX: ", b"y"),
    "the last header": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "a chunk's size": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x"),
    "the body": (b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b" "),
}


@pytest.mark.parametrize("never", DRIPS)
def test_one_byte_now_and_then_keeps_no_job(serve, never):
    first, each = DRIPS[never]

    def reply(handler):
        handler.wfile.write(first)
        drip(handler, each)

    client, _ = serve(reply, timeout_s=0.5)
    began = time.monotonic()
    assert client.lookup(add_operator()).source == "nobody"
    assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize("status", [200, 404, 416])
def test_a_file_that_is_not_sent_to_its_end_is_given_up(serve, tmp_path, monkeypatch, status):
    monkeypatch.setattr(rest, "SLOWEST_BYTES_S", 1e6)

    def reply(handler):
        handler.send_response(status)
        handler.end_headers()
        drip(handler, b"x" * 100)

    client, _ = serve(reply, timeout_s=0.5)
    manifest = SimpleNamespace(files={"kernel.so": "0" * 64})
    began = time.monotonic()
    with pytest.raises(rest.ServiceError):
        client.rest.download("a" * 64, manifest, tmp_path)
    assert time.monotonic() - began < LONG_S / 2


def test_a_file_that_broke_off_is_gone_on_with(serve, tmp_path):
    whole, ranges = bytes(range(256)) * 8, []

    def rest_of_it(handler):
        ranges.append(handler.headers["Range"])
        begin = int((ranges[-1] or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        handler.send(whole[begin:], status=206 if ranges[-1] else 200)

    client, _ = serve(rest_of_it)
    (tmp_path / "kernel.so.part").write_bytes(whole[:1000])
    client.rest.download("a" * 64, SimpleNamespace(files={"kernel.so": "0" * 64}), tmp_path)
    assert ranges == ["bytes=1000-"], "one request, for what is missing"
    assert (tmp_path / "kernel.so").read_bytes() == whole


def test_files_are_fetched_side_by_side(serve, tmp_path):
    both = threading.Barrier(2, timeout=LONG_S / 2)

    def meet(handler):
        both.wait()  # breaks where one is asked for only after the other has come
        handler.send(handler.path.encode())

    client, _ = serve(meet)
    client.rest.download("a" * 64, SimpleNamespace(files={"one": "0" * 64, "two": "0" * 64}), tmp_path)
    assert (tmp_path / "one").read_bytes().endswith(b"/one")
    assert (tmp_path / "two").read_bytes().endswith(b"/two")


def test_a_body_that_would_fill_the_memory_is_not_parsed(serve):
    body = b"[" + b"[]," * rest.MOST_VALUES + b"1]"
    client, _ = serve(lambda handler: handler.send(body))
    with pytest.raises(rest.ServiceError, match="more than 2000000 values"):
        client.rest.call("GET", "/api/v1/signers/")


def test_a_body_without_an_end_is_not_read_to_it(serve, monkeypatch):
    monkeypatch.setattr(wire, "MOST_BYTES", 1 << 20)

    def endless(handler):
        handler.send(b"[", Content_Length=str(1 << 40))
        try:
            for _ in range(2000):
                handler.wfile.write(b"1," * 65536)
        except OSError:
            handler.server.hung_up = True

    client, server = serve(endless)
    empty = client.lookup(add_operator())
    assert not empty and "larger than" in empty.reason
    until(lambda: getattr(server, "hung_up", False))


def test_the_key_follows_no_redirect(serve):
    thief, stolen = serve(says(answer()))
    client, _ = serve(
        lambda handler: handler.send(b"", status=307, Location=thief.rest.wire.url + "/api/v1/lookup")
    )
    assert not client.lookup(add_operator())
    assert not stolen.asked


@pytest.mark.parametrize("signer", [{}, {"public_key": 7, "retired_at": None}, {"public_key": "zz"}])
def test_a_key_that_is_none_signs_nothing(serve, signer):
    manifest = Manifest("recipe", "numpy", add_operator().to_json(), Setting(threads=1).to_json()).to_json()
    document = {"manifest": manifest, "signature": "00" * 64, "signer": "b" * 64}
    lie = answer() | {"manifests": {"a" * 64: document}, "signers": {"b" * 64: signer}}
    client, _ = serve(says(lie))
    with pytest.raises(Refused, match="not trusted"):
        client.lookup(add_operator()).load()


def test_a_list_of_signers_that_never_ends_is_given_up(serve, monkeypatch):
    passed_s = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + next(passed_s))
    monkeypatch.setattr(rest, "time", clock)
    page = {"results": [{"sha256": "c" * 64, "public_key": "00" * 32, "retired_at": None}], "next": "more"}
    client, server = serve(says(answer() | page))
    with pytest.raises(rest.ServiceError, match="no end"):
        client.rest.signers()
    assert 1 < len(server.asked) <= LONG_S


def test_signers_without_names_are_none(serve):
    client, _ = serve(says({"results": [{"public_key": "00" * 32}], "next": None}))
    with pytest.raises(rest.ServiceError, match="sha256"):
        client.rest.signers()


def test_one_lie_about_what_was_revoked_silences_nobody(serve):
    """Where the next service does not take it for a place in its list, it is asked from the beginning."""

    def reply(handler):
        if handler.server.lies:
            told = answer(expires_s=0.1) | {"revoked_until": "a-lie"}
            return handler.send(json.dumps(told).encode())
        if handler.server.bodies[-1]["revoked_since"] != "0":
            refusal = {"error": "revoked_since is what it was, or 0.", "where": "revoked_since"}
            return handler.send(json.dumps(refusal).encode(), status=400)
        told = answer() | {"revoked": ["c" * 64], "revoked_until": "17"}
        return handler.send(json.dumps(told).encode())

    client, server = serve(reply)
    server.lies = True
    assert client.lookup(add_operator())
    assert client.store.told_until() == "a-lie"
    server.lies = False
    time.sleep(0.15)
    assert client.lookup(add_operator()).source == "service"
    assert client.revoked == {"c" * 64} and client.store.told_until() == "17"


def test_no_entry_lives_longer_than_a_day(serve):
    client, _ = serve(says(answer(expires_s=1e300)))
    assert client.lookup(add_operator()).expires_s == 86400.0


def test_a_manifest_of_something_else_is_refused(serve):
    from opatlas.errors import LoadError

    wrong = {"manifest": {"files": {}}, "signature": "00", "signer": "b" * 64}
    document = answer() | {
        "manifests": {"a" * 64: wrong},
        "signers": {"b" * 64: {"public_key": "00" * 32, "retired_at": None}},
    }
    client, _ = serve(says(document))
    with pytest.raises(LoadError, match="manifest"):
        client.lookup(add_operator()).load()
