"""The table that every address with arguments, or that changes something, must be in.

``EXAMPLES``: address → its arguments, made of the first tenant's rows. ``BODIES``: address → what is posted.
``NEEDS``: address → what it takes to post there, for members of the organisation that owns the rows:
``operate``, ``approve``, ``bill``, ``administer``; ``host …`` where it is a matter of the whole service;
``anybody`` for what concerns oneself alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils.http import urlsafe_base64_encode

from tests.dashboard.kernels import SOURCE

Rows = dict[str, Any]

OPEN = {
    "login", "healthz", "readyz", "metrics", "csp-report", "service-worker", "favicon", "invited",
    "forgotten", "renew",
    "notification-unsubscribe", "billing/payments/{provider}",
}  # fmt: skip
"""Addresses that answer without credentials: nobody's data is there."""

COMMON = {
    "operator",
    "operator-state",
    "statistics/operators/{key}",
    "operators/{key}",
    "operators/{key}/best",
    "operators/{key}/implementations",
}
"""With arguments, and open to everybody who is logged in: the shared catalogue's."""


def _kernel(rows: Rows) -> Rows:
    return {"pk": rows["kernel"].pk, "number": rows["version"].number}


EXAMPLES: dict[str, Callable[[Rows], list[Rows]]] = {
    "operator": lambda rows: [{"key": rows["operator"].key}],
    "operator-state": lambda rows: [{"key": rows["operator"].key}],
    "operator-code": lambda rows: [
        {"key": rows["operator"].key, "implementation_id": rows["implementation"].pk}
    ],
    "operator-revoke": lambda rows: [{"key": rows["operator"].key}],
    "operator-raw": lambda rows: [
        {"key": rows["operator"].key, "implementation_id": rows["implementation"].pk, "part": part}
        for part in ("source", "schedule")
    ],
    "operator-file": lambda rows: [
        {
            "key": rows["operator"].key,
            "implementation_id": rows["implementation"].pk,
            "name": next(iter(rows["artifact"].manifest["files"])),
        }
    ],
    "alert": lambda rows: [{"pk": rows["alert"].pk}],
    "alert-act": lambda rows: [
        {"pk": rows["alert"].pk, "verb": verb} for verb in ("acknowledge", "mute", "resolve")
    ],
    **{
        f"alerts/{{id}}{verb}": lambda rows: [{"id": rows["alert"].pk}]
        for verb in ("", "/acknowledge", "/mute", "/resolve")
    },
    "failure": lambda rows: [{"pk": rows["failure"].pk}],
    "failure-again": lambda rows: [{"pk": rows["failure"].pk}],
    **{f"failure-groups/{{id}}{verb}": lambda rows: [{"id": rows["failure"].pk}] for verb in ("", "/again")},
    "miss-act": lambda rows: [{"pk": rows["miss"].pk, "verb": verb} for verb in ("explore", "discard")],
    "job": lambda rows: [{"pk": rows["job"].pk}],
    "renew": lambda rows: [{"uidb64": urlsafe_base64_encode(b"1"), "token": "not-a-token"}],
    "billing-of": lambda rows: [{"pk": rows["organisation"].pk}],
    "billing-entry": lambda rows: [{"pk": rows["organisation"].ledger.order_by("pk")[0].pk}],
    "billing-credit": lambda rows: [{"pk": rows["organisation"].pk}],
    "billing-plan": lambda rows: [{"pk": rows["organisation"].pk}],
    "billing-rule": lambda rows: [{"line": rows["rule"].line}],
    "billing-rule-end": lambda rows: [{"line": rows["rule"].line}],
    "billing/payments/{provider}": lambda rows: [{"provider": "nobody"}],
    "billing/rules/{line}": lambda rows: [{"line": rows["rule"].line}],
    "billing/rules/{line}/end": lambda rows: [{"line": rows["rule"].line}],
    "billing/spending/{number}/end": lambda rows: [{"number": rows["spending"].pk}],
    "billing-spending-end": lambda rows: [{"pk": rows["spending"].pk}],
    "member-uninvite": lambda rows: [{"pk": rows["invitation"].pk}],
    "member-role": lambda rows: [{"pk": rows["membership"].pk}],
    "member-remove": lambda rows: [{"pk": rows["membership"].pk}],
    "account-switch": lambda rows: [{"pk": rows["membership"].user_id, "verb": "off"}],
    "key-revoke": lambda rows: [{"pk": rows["key"].pk}],
    "own-key-revoke": lambda rows: [{"pk": rows["key"].pk}],
    "keys/{number}/revoke": lambda rows: [{"number": rows["key"].pk}],
    "members/{number}": lambda rows: [{"number": rows["membership"].pk}],
    "invited": lambda rows: [{"token": rows["token"][:-3] + "xyz"}],
    "notification": lambda rows: [{"pk": rows["notification"].pk}],
    "subscription": lambda rows: [{"pk": rows["subscription"].pk}],
    "subscription-end": lambda rows: [{"pk": rows["subscription"].pk}],
    "subscription-test": lambda rows: [{"pk": rows["subscription"].pk}],
    "push-forget": lambda rows: [{"pk": rows["device"].pk}],
    "notification-unsubscribe": lambda rows: [{"token": f"{rows['subscription'].pk}:forged"}],
    **{f"misses/{{id}}/{verb}": lambda rows: [{"id": rows["miss"].pk}] for verb in ("discard", "explore")},
    "statistics/jobs/{number}": lambda rows: [{"number": rows["job"].pk}],
    "webhooks/deliveries/{id}": lambda rows: [{"id": rows["delivery"].pk}],
    "webhooks/deliveries/{id}/replay": lambda rows: [{"id": rows["delivery"].pk}],
    **{
        f"webhooks/endpoints/{{id}}{verb}": lambda rows: [{"id": rows["endpoint"].pk}]
        for verb in ("", "/disable", "/enable", "/rotate", "/test")
    },
    "webhook-endpoint": lambda rows: [{"pk": rows["endpoint"].pk}],
    "webhook-act": lambda rows: [
        {"pk": rows["endpoint"].pk, "verb": verb}
        for verb in ("change", "rotate", "disable", "enable", "test", "delete", "replay")
    ],
    "webhook-delivery": lambda rows: [{"pk": rows["delivery"].pk}],
    "webhook-replay": lambda rows: [{"pk": rows["delivery"].pk}],
    "explorations/{id}/eta": lambda rows: [{"id": rows["exploration"].pk}],
    "explorations/{id}/races": lambda rows: [{"id": rows["exploration"].pk}],
    "explorations/{id}/log": lambda rows: [{"id": rows["exploration"].pk}],
    "exploration": lambda rows: [{"pk": rows["exploration"].pk}],
    "exploration-act": lambda rows: [
        {"pk": rows["exploration"].pk, "verb": verb}
        for verb in ("pause", "resume", "retry", "discard", "prioritise")
    ],
    "queue-act": lambda rows: [{"verb": "pause"}],
    "model": lambda rows: [{"pk": rows["model"].pk}],
    "kernel": lambda rows: [{"pk": rows["kernel"].pk}],
    "kernel-edit": lambda rows: [{"pk": rows["kernel"].pk}],
    "kernel-version": lambda rows: [_kernel(rows)],
    "kernel-standing": lambda rows: [_kernel(rows)],
    "kernel-decide": lambda rows: [{**_kernel(rows), "verb": "approve"}, {**_kernel(rows), "verb": "reject"}],
    "artifacts/{sha256}": lambda rows: [{"sha256": rows["artifact"].sha256}],
    "artifacts/{sha256}/files/{name}": lambda rows: [
        {"sha256": rows["artifact"].sha256, "name": next(iter(rows["artifact"].manifest["files"]))}
    ],
    "predictor/{sha256}": lambda rows: [{"sha256": rows["network"].sha256}],
    "explorations/{id}": lambda rows: [{"id": rows["exploration"].pk}],
    **{
        f"explorations/{{id}}/{verb}": lambda rows: [{"id": rows["exploration"].pk}]
        for verb in ("discard", "pause", "prioritise", "resume", "retry")
    },
    "implementations/{number}": lambda rows: [{"number": rows["implementation"].pk}],
    "implementations/{number}/revoke": lambda rows: [{"number": rows["implementation"].pk}],
    "kernels/{number}": lambda rows: [{"number": rows["kernel"].pk}],
    "kernels/{number}/history": lambda rows: [{"number": rows["kernel"].pk}],
    "kernels/{number}/versions": lambda rows: [{"number": rows["kernel"].pk}],
    **{
        f"kernels/versions/{{number}}{verb}": lambda rows: [{"number": rows["version"].pk}]
        for verb in ("", "/approve", "/evaluate", "/evidence", "/reject", "/revoke")
    },
    "models/{id}": lambda rows: [{"id": rows["model"].pk}],
    "upload": lambda rows: [{"pk": rows["upload"].pk}],
    "upload-cancel": lambda rows: [{"pk": rows["upload"].pk}],
    **{f"uploads/{{id}}{verb}": lambda rows: [{"id": rows["upload"].pk}] for verb in ("", "/cancel")},
    **{
        f"plans/{{id}}{verb}": lambda rows: [{"id": rows["plan"].pk}]
        for verb in ("", "/measured", "/timeline")
    },
    "statistics/operators/{key}": lambda rows: [{"key": rows["operator"].key}],
    "notifications/{id}/read": lambda rows: [{"id": rows["notification"].pk}],
    "subscriptions/{id}": lambda rows: [{"id": rows["subscription"].pk}],
    "operators/{key}": lambda rows: [{"key": rows["operator"].key}],
    "operators/{key}/best": lambda rows: [{"key": rows["operator"].key}],
    "operators/{key}/implementations": lambda rows: [{"key": rows["operator"].key}],
    "revalidations/{id}": lambda rows: [{"id": 1}],
}

COMMON_ROWS = {"revalidations/{id}"}
"""With arguments that name a common row, within which a tenant's own parts must not show."""

_REASON = {"reason": "no good reason"}
_SUBMISSION = {
    "name": "planted-by-another", "language": "c", "source": SOURCE, "operators": "Softmax",
    "pattern": {"op": "Softmax"}, "constraints": "", "flags": [], "author": "N", "licence": "MIT",
    "description": "", "example": "",
}  # fmt: skip

BODIES: dict[str, Callable[[Rows], Rows]] = {
    "operator-revoke": lambda rows: {"implementation": str(rows["implementation"].pk), **_REASON},
    "environment-declare": lambda rows: {"worker": "worker-3@canary"},
    "exploration-act": lambda rows: {"priority": "0"},
    "queue-act": lambda rows: {},
    "models": lambda rows: {"name": "nothing"},
    "model-sample": lambda rows: {},
    "kernel-submit": lambda rows: {**_SUBMISSION, "flags": ""},
    "kernel-edit": lambda rows: {**_SUBMISSION, "flags": "-O3"},
    "kernel-decide": lambda rows: _REASON,
    "logout": lambda rows: {},
    "explorations-act": lambda rows: {"id": [str(rows["exploration"].pk)], "verb": "discard", **_REASON},
    "misses-act": lambda rows: {"id": [str(rows["miss"].pk)], "verb": "discard", **_REASON},
    "miss-act": lambda rows: _REASON,
    "alert-act": lambda rows: {"for_s": "3600", **_REASON},
    "failure-again": lambda rows: {},
    **{f"alerts/{{id}}/{verb}": lambda rows: _REASON for verb in ("acknowledge", "resolve")},
    "alerts/{id}/mute": lambda rows: {"for_s": 3600, **_REASON},
    "failure-groups/{id}/again": lambda rows: {},
    "billing-credit": lambda rows: {"amount": "100", "kind": "credit", **_REASON},
    "billing-plan": lambda rows: {"plan": "postpaid"},
    "billing-rule-new": lambda rows: {"name": "forged", "mode": "free", "currency": "EUR"},
    "billing-rule": lambda rows: {"name": "forged", "mode": "free", "currency": "EUR"},
    "billing-rule-end": lambda rows: {},
    "billing/credit": lambda rows: {"organisation": rows["organisation"].pk, "amount_micros": 5, **_REASON},
    "billing/payments/{provider}": lambda rows: {"type": "forged"},
    "billing/rules": lambda rows: {"name": "forged", "mode": "free", "currency": "EUR"},
    "billing/rules/{line}": lambda rows: {"name": "forged", "mode": "free", "currency": "EUR"},
    "billing/rules/{line}/end": lambda rows: {},
    "billing/spending/{number}/end": lambda rows: {},
    "billing-spending-end": lambda rows: {},
    "member-invite": lambda rows: {"email": "no address", "role": "viewer"},
    "member-uninvite": lambda rows: {},
    "member-role": lambda rows: {"role": "admin"},
    "member-remove": lambda rows: {},
    "organisations": lambda rows: {"organisation": str(rows["organisation"].pk), "name": "taken over"},
    "account-switch": lambda rows: {},
    "key-create": lambda rows: {"name": "x", "scopes": ["nothing"]},
    "key-revoke": lambda rows: {},
    "own-key-create": lambda rows: {"name": "x", "scopes": ["nothing"]},
    "own-key-revoke": lambda rows: {},
    "begin-key": lambda rows: {},
    "keys/": lambda rows: {"name": "x", "scopes": ["nothing"]},
    "keys/{number}/revoke": lambda rows: {},
    "members/": lambda rows: {"email": "no address", "role": "admin"},
    "members/{number}": lambda rows: {"role": "admin"},
    "invited": lambda rows: {"username": "x"},
    "account": lambda rows: {"email": "no address"},
    "end-sessions": lambda rows: {},
    "focus": lambda rows: {"organisation": str(rows["organisation"].pk)},
    "notifications-read": lambda rows: {"notification": [str(rows["notification"].pk)]},
    "subscribe": lambda rows: {"subject": "job", "job": str(rows["job"].pk), "on_hit": "on", "by_page": "on"},
    "subscription": lambda rows: {"on_hit": "on"},
    "subscription-end": lambda rows: {},
    "subscription-test": lambda rows: {},
    "notification-address": lambda rows: {"email": "no address"},
    "notification-unsubscribe": lambda rows: {"all": "1"},
    "push-register": lambda rows: {"endpoint": "nothing"},
    "push-forget": lambda rows: {},
    "explorations/bulk": lambda rows: {"ids": [rows["exploration"].pk], "action": "discard", **_REASON},
    "misses/bulk": lambda rows: {"ids": [rows["miss"].pk], "action": "discard", **_REASON},
    "misses/{id}/discard": lambda rows: _REASON,
    "misses/{id}/explore": lambda rows: {},
    "webhooks/deliveries/{id}/replay": lambda rows: {},
    "notifications/{id}/read": lambda rows: {},
    "notifications/read": lambda rows: {},
    "subscriptions/": lambda rows: {"subject": "job", "job": rows["job"].pk},
    "subscriptions/{id}": lambda rows: {"on_hit": True},
    "webhook-create": lambda rows: {"url": "nothing"},
    "webhook-act": lambda rows: _REASON,
    "webhook-replay": lambda rows: {},
    "webhooks/endpoints/": lambda rows: {"url": "nothing"},
    "webhooks/endpoints/{id}": lambda rows: {"description": "taken over"},
    **{f"webhooks/endpoints/{{id}}/{verb}": lambda rows: {}
       for verb in ("disable", "enable", "rotate", "test")},
    "webhooks/replay": lambda rows: {"endpoint": rows["endpoint"].pk, "since": "2026-11-20T00:00:00Z"},
    "forgotten": lambda rows: {"email": "nobody@example.org"},
    "renew": lambda rows: {"new_password1": "y", "new_password2": "y"},
    "password": lambda rows: {"old_password": "x", "new_password1": "y", "new_password2": "z"},
    "environments/declare": lambda rows: {"worker": "worker-3@canary"},
    **{f"explorations/{{id}}/{verb}": lambda rows: {"priority": 0, **_REASON}
       for verb in ("discard", "pause", "prioritise", "resume", "retry")},
    "implementations/{number}/revoke": lambda rows: _REASON,
    "kernels/": lambda rows: {key: _SUBMISSION[key] for key in _SUBMISSION if key != "operators"
                              and key != "constraints"},
    "kernels/{number}/versions": lambda rows: {
        key: _SUBMISSION[key] for key in _SUBMISSION if key not in ("operators", "constraints", "name")},
    **{f"kernels/versions/{{number}}/{verb}": lambda rows: _REASON
       for verb in ("approve", "evaluate", "reject", "revoke")},
    "lookup": lambda rows: {"target": "t1:" + "0" * 64, "setting": "s1:" + "0" * 64, "operators": []},
    "explain": lambda rows: {
        "target": "t1:" + "0" * 64, "setting": "s1:" + "0" * 64, "operator": {"key": rows["operator"].key}},
    "usage": lambda rows: {
        "client": "c" * 32, "sequence": 1, "used": [{"implementation": rows["implementation"].pk}]},
    "failures": lambda rows: {
        "failed": [{"implementation": rows["implementation"].pk, "artifact": rows["artifact"].sha256,
                    "where": "run", "error": "KernelFailed"}]},
    "models/": lambda rows: {"sample": "nothing"},
    "plans": lambda rows: {"model": rows["model"].pk},
    "plans/{id}/measured": lambda rows: {
        "plan_us": 1.0, "default_us": 2.0, "ratio": 2.0, "ratio_low": 1.9, "ratio_high": 2.1, "chosen": True},
    "plans/{id}/timeline": lambda rows: {
        "timeline": 1, "rows": ["stream 0"], "boxes": [[0, 0.0, 1.0, "Relu", "", ""]], "waits": []},
    "queues/pause": lambda rows: {"capability": "*", **_REASON},
    "queues/resume": lambda rows: {"capability": "*"},
    "queues/weight": lambda rows: {"organisation": rows["organisation"].pk, "weight": 50},
    "queue-weight": lambda rows: {"organisation": str(rows["organisation"].pk), "weight": "50"},
    "upload-cancel": lambda rows: {},
    "uploads/{id}/cancel": lambda rows: {},
}  # fmt: skip

ADMIN, OPERATORS, HOST = {"admin"}, {"operator", "admin"}, set[str]()

NEEDS: dict[str, set[str]] = {
    "exploration-act": OPERATORS,
    "miss-act": OPERATORS,
    "alert-act": OPERATORS,
    "failure-again": OPERATORS,
    "kernel-edit": ADMIN,  # and who made it
    "operator-revoke": {"approver", "admin"},
    "member-uninvite": ADMIN,
    "member-role": ADMIN,
    "member-remove": ADMIN,
    "key-revoke": ADMIN,
    "webhook-act": {"billing", "admin"},
    "webhook-replay": {"billing", "admin"},
    "kernel-decide": HOST,
    "account-switch": HOST,
    "queue-act": HOST,
    "queue-weight": HOST,
    "environment-declare": HOST,
    "billing-spending-end": {"billing", "admin"},
    "billing-credit": HOST,
    "billing-plan": HOST,
    "billing-rule": HOST,
    "billing-rule-end": HOST,
    "billing-rule-new": HOST,
}
"""Page → the roles of the organisation that owns the rows who may post there. ``HOST``: none of them, since
it is a matter of the whole service."""

PERSONAL = {
    "subscription", "subscription-end", "subscription-test", "push-forget", "notification", "own-key-revoke",
}  # fmt: skip
"""A person's own: other members of the same organisation do not see them either."""
