"""Web Push: encrypted for the one browser that can read it, sent to the push service that it named."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dashboard.notifications.channels.outcome import SendResult
from dashboard.notifications.channels.push import vapid
from dashboard.notifications.write.letters import Letter
from dashboard.webhooks import guard
from opatlas.conf import conf

TTL_S = 24 * 3600
TIMEOUT_S = 8.0
_EXPIRES_S = 12 * 3600


@dataclass(frozen=True)
class Device:
    """A browser's subscription, apart from its row."""

    pk: int
    endpoint: str
    p256dh: str
    auth: str


def send(letter: Letter, devices: Sequence[Device], until: float) -> SendResult:
    """To each device that has not got it yet; asks no database. It has arrived once one device has it and
    none is left that could take it later."""
    left = [device for device in devices if device.pk not in letter.reached]
    if not devices and not letter.reached:
        return SendResult(error="No phone or browser takes messages yet.", final=True)
    reached, gone, errors = list(letter.reached), list[int](), list[str]()
    retry = False
    for device in left:
        if time.monotonic() >= until:
            return SendResult(untried=True, reached=tuple(reached), gone=tuple(gone))
        reply = _post(device, payload(letter))
        if reply.ok:
            reached.append(device.pk)
        elif reply.status in (404, 410):
            gone.append(device.pk)
        else:
            errors.append(reply.error)
            retry = retry or reply.status is None or reply.status == 429 or reply.status >= 500
    ok = bool(reached) and not retry
    error = "; ".join(errors)[:280] or ("" if ok else "The device takes no messages any more.")
    return SendResult(ok, error, final=not ok and not retry, reached=tuple(reached), gone=tuple(gone))


def payload(letter: Letter) -> bytes:
    """What the service worker reads. Push services carry at most 4 KiB."""
    shown = letter.lines[:5]
    body = " ".join(line.text for line in shown)
    if len(letter.lines) > len(shown):
        body += f" And {len(letter.lines) - len(shown)} more."
    tag = shown[0].key if len(letter.lines) == 1 else f"message-{letter.message_id}"
    title = "Opatlas" if len(letter.lines) == 1 else f"Opatlas: {len(letter.lines)} messages"
    # A path: the worker opens it where it lives, whatever the service calls itself.
    path = letter.url.removeprefix(conf().service_url)
    return json.dumps({"title": title, "body": body, "url": path, "tag": tag}).encode()


def _post(device: Device, data: bytes) -> guard.Reply:
    from pywebpush import WebPusher, WebPushException  # brings aiohttp: only the courier pays for it

    try:
        info = {"endpoint": device.endpoint, "keys": {"p256dh": device.p256dh, "auth": device.auth}}
        body = WebPusher(info).encode(data)["body"]
        headers = vapid.headers(device.endpoint, int(time.time()) + _EXPIRES_S)
    except (WebPushException, ValueError) as error:
        return guard.Reply(400, f"The device's keys cannot be used: {error}")
    headers |= {"Content-Encoding": "aes128gcm", "Content-Type": "application/octet-stream"}
    headers |= {"TTL": str(TTL_S), "Urgency": "normal"}
    return guard.post(device.endpoint, body, headers, timeout_s=TIMEOUT_S)
