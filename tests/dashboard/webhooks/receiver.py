"""A receiver of webhooks: a real HTTP server on this machine that remembers what it got."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


@dataclass
class Got:
    """One request."""

    path: str
    headers: dict[str, str]
    body: str
    at: float


@dataclass
class Receiver:
    """``answer``: what it does with a request; the handler has ``send_response``, ``got`` and the like."""

    port: int = 0
    host: str = "127.0.0.1"
    got: list[Got] = field(default_factory=list)
    answer: Callable[[BaseHTTPRequestHandler], None] = lambda handler: plain(handler, 200)

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}/hooks"

    @property
    def ids(self) -> list[str]:
        return [one.headers["webhook-id"] for one in self.got]


def plain(
    handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def answering(status: int, body: bytes = b"", **headers: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Always the same answer; ``retry_after="7"`` becomes the header Retry-After."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: plain(handler, status, body, named)


def silent(for_s: float) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        time.sleep(for_s)

    return answer


def self_signed(folder: Path, name: str) -> Path:
    """A file with a key and its certificate for this host name alone; gives its path."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(text + certificate.public_bytes(Encoding.PEM))
    return path


@contextmanager
def receiving(certificate: Path | None = None, host: str = "127.0.0.1") -> Iterator[Receiver]:
    """A receiver that listens; over TLS with the key and certificate of this file, if there is one."""
    receiver = Receiver(host=host)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.got = Got(self.path, headers, body, time.monotonic())
            receiver.got.append(self.got)
            receiver.answer(self)

        do_GET = do_POST

        def log_message(self, *args: object) -> None:
            """Requests are not news here."""

        def handle(self) -> None:
            with suppress(OSError):  # the sender has hung up, as some tests mean it to
                super().handle()

    server = ThreadingHTTPServer((host, 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        # The handshake belongs to the request's own thread: one that fails must not end the server.
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
