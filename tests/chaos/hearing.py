"""The receiver of what the service tells by webhook: it believes what is signed with its secret, and each
message that it was sent is a line of a trace. It can be down for a while."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from standardwebhooks import Webhook, WebhookVerificationError

from catalog.failpoints import append
from tests.dashboard.webhooks.receiver import Receiver, plain


class Hearer:
    """Answers for ``receiver`` from now on; its secret is known once the service has made one."""

    def __init__(self, receiver: Receiver, trace: Path) -> None:
        self._trace = trace
        self.secret, self.is_down = "", False
        receiver.answer = self._take

    def _take(self, handler: Any) -> None:
        if self.is_down:
            return plain(handler, 503)
        body, headers = handler.got.body, handler.got.headers
        line = {"id": headers.get("webhook-id", ""), "sha256": hashlib.sha256(body.encode()).hexdigest()}
        try:
            Webhook(self.secret).verify(body, headers)
        except WebhookVerificationError as error:
            append(self._trace, line | {"unsigned": str(error)})
            return plain(handler, 400)
        said = json.loads(body)
        # First: an answer that gets lost says nothing of the message.
        append(self._trace, line | {"type": said["type"], "data": said["data"]})
        return plain(handler, 200)
