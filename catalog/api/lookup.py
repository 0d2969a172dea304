"""``POST /lookup`` and ``GET /operators/{key}/best``: the endpoints that jobs call.

No serializer is used on this path: ``lookup_json`` reads and ``lookup_answer`` writes. Repeated lookups are
answered in front of Django (``dashboard.operation.front``), from what it learns here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpResponse
from django.urls import path
from rest_framework.request import Request

from catalog import models
from catalog.api import lookup_json
from catalog.api.describing import OPERATOR, header, query
from catalog.api.endpoint import RestView, operation
from catalog.api.lookup_answer import answer_text, best_text
from catalog.api.lookup_json import ParsedLookup
from catalog.api.lookup_shapes import BestAnswerSerializer, LookupAnswerSerializer, LookupRequestSerializer
from catalog.api.parsers import BoundedJSONParser
from catalog.api.warm.memory import LESSON, Lesson
from catalog.api.warm.rows import ROWS, WarmRows
from catalog.best.revoked import Revocations, revocations
from catalog.best.served import scopes_of
from catalog.errors import RequestError
from catalog.lookup.lookups import LookupAnswer, LookupRequest, lookup
from catalog.lookup.repeating import NamedRequest
from catalog.selectors import known

IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    "Names this request: 1 to 255 visible ASCII characters, in quotes or not, others for each request. Sent "
    "again within a day, a lookup that was charged is answered as it was and not charged again; another "
    "request of that name is a 422.",
)
_VISIBLE = re.compile(r"[!-~]{1,255}")


class _Asking(RestView):
    """The common part of both endpoints."""

    takes_keys_of_the_look = True

    def answered(
        self,
        parsed: ParsedLookup,
        named: NamedRequest | None,
        text_of: Callable[[LookupAnswer, Revocations], bytes],
    ) -> HttpResponse:
        key = self.key
        target, setting = self._place(parsed)
        answer = lookup(
            LookupRequest(
                target=target,
                setting=setting,
                operators=parsed.operators,
                related=parsed.related,
                organisation=key.organisation,
                api_key=key,
                job=parsed.job,
                accepts=parsed.accepts,
                wait_s=parsed.wait_s,
                wait_for=parsed.wait_for,
                include=parsed.include,
                known=parsed.known,
                spend_limit=parsed.spend_limit,
                free_only=parsed.free_only,
                named=named,
            )
        )
        # Read after the lookup: what was revoked while it ran is told as well.
        told = revocations(scopes_of(key.organisation), parsed.revoked_since)
        if named is None:
            self.request._request.META[LESSON] = Lesson(key, parsed, answer)
        # Straight to bytes: a renderer that negotiates costs more than the answer.
        return HttpResponse(text_of(answer, told), content_type="application/json")

    def _place(self, parsed: ParsedLookup) -> tuple[models.Target, models.Setting]:
        """A target and setting named by keys alone may come from this look's memory."""
        rows: WarmRows | None = self.request._request.META.get(ROWS)
        target, setting = parsed.target, parsed.setting
        if rows is None or not isinstance(target, str):
            return lookup_json.resolve(parsed)
        if not (setting is None or isinstance(setting, str)):
            return lookup_json.resolve(parsed)
        return rows.found(("place", target, setting), partial(lookup_json.resolve, parsed))


class LookupView(_Asking):
    """Ask for the best implementations of up to 1,024 operators on a target."""

    parser_classes = [BoundedJSONParser]

    @operation(
        LookupAnswerSerializer,
        name="lookup",
        takes=LookupRequestSerializer,
        parameters=[IDEMPOTENCY_KEY],
        fails=[409, 422],
    )
    def post(self, request: Request) -> HttpResponse:
        """Ask for the best implementations of many operators.

        A hit carries the fastest implementation that the request accepts, with its evidence. A miss is
        answered at once and explored in the background; it is committed before the answer leaves, and
        asking twice is one exploration with a count. An operator whose graph the service never saw is
        answered `need_graph`: send it once. Misses beyond the key's quota are answered `refused`, item by
        item; the request itself succeeds. An unknown target or setting key is a 404. A hit says
        in `stage` how far exploring has come, in `final` whether it is over, in `best.is_default` whether it
        is only the default itself; it may be used for `expires_s` without asking again. `wait_s` waits until
        the stage `wait_for` is reached. `revoked` names artifacts that must no longer be used from now
        on, whoever holds them. `include` brings manifests and what is known of related operators along, so
        that one request is enough for a whole model."""
        named = _named(request, request.data)
        return self.answered(lookup_json.parse_lookup(request.data), named, answer_text)


class OperatorBestView(_Asking):
    """Ask for one operator that is known, by its key."""

    http_method_names = ["get", "options"]  # a HEAD would count, and charge, a hit that nobody gets

    @operation(
        BestAnswerSerializer,
        name="operator_best",
        tag="lookup",
        fails=[422],
        parameters=[
            IDEMPOTENCY_KEY,
            OPERATOR,
            query(
                "target",
                "The target's t1: key, or `here`: that of the worker seen last.",
                required=True,
                pattern="^(t1:[0-9a-f]{64}|here)$",
            ),
            query(
                "setting",
                "The setting's s1: key; all cores of a CPU if left out.",
                pattern="^s1:[0-9a-f]{64}$",
            ),
            query("threads", "So many threads in place of a setting's key.", pattern="^[0-9]{1,4}$"),
            query("kinds", "Artifact kinds that can be loaded: c-abi,recipe."),
            query("versions", "What is installed: torch==2.13.0,onnxruntime==1.31.1."),
            query("job", "The run that asks, by its name.", maxLength=200),
        ],
    )
    def get(self, request: Request, key: str) -> HttpResponse:
        """Ask for the best implementation of one operator.

        The same as a lookup of this one operator: a miss is recorded and will be explored."""
        parsed = lookup_json.parse_best(key, request.query_params)
        named = _named(request, [key, *sorted(request.query_params.lists())])

        def text_of(answer: LookupAnswer, told: Revocations) -> bytes:
            if answer.results[0].status == "need_graph":
                known.operator(key)  # 404 where there is none: most often there is a hit, and no need to ask
            return best_text(answer, told)

        return self.answered(parsed, named, text_of)


def _named(request: Request, document: Any) -> NamedRequest | None:
    given = request._request.META.get("HTTP_IDEMPOTENCY_KEY")  # `headers` would be made of all variables
    if given is None:
        return None
    bare = given[1:-1] if len(given) > 1 and given[0] == given[-1] == '"' else given
    if not _VISIBLE.fullmatch(bare):
        raise RequestError(
            "An Idempotency-Key is 1 to 255 visible ASCII characters, in quotes or not.",
            where="Idempotency-Key",
        )
    return NamedRequest(bare, document)


urlpatterns = [
    path("lookup", LookupView.as_view(), name="lookup"),
    path("operators/<operator_key:key>/best", OperatorBestView.as_view(), name="operator-best"),
]
