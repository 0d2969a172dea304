"""Uploads over REST: how models and requests for plans are taken in, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import IO, Any

from django.db.models import QuerySet
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import models
from catalog.api.authentication import Needs
from catalog.api.endpoint import Listing, RestView, listing, one, operation
from catalog.api.parsers import BoundedParser
from catalog.api.shapes import ModelAnswer
from catalog.conf import MAX_WAIT_S
from catalog.errors import QuotaUsed, RequestError
from tuning.uploads import intake
from tuning.uploads.intake import UploadWish
from tuning.uploads.models import Upload, UploadKind, UploadState

SMALL_BYTES = 64 << 10
"""A body that is looked at before it is stored, so that what is plainly wrong is refused at once."""
READ_ON_BYTES = 16 << 20
"""Of a body that is refused, so that its sender comes to read why."""
WAITED_FOR_BYTES, WAIT_S = 1 << 20, 10.0
"""A body up to this size is waited for, so long, where nothing is said."""

WAITING = [
    OpenApiParameter(
        "wait_s",
        OpenApiTypes.FLOAT,
        description=f"Wait until it has ended, at most so long (to {MAX_WAIT_S:g}); else {WAIT_S:g} s up to "
        f"{WAITED_FOR_BYTES >> 20} MiB, 0 for more.",
    )
]

Given = UploadWish | tuple[UploadWish, bytes]
"""What an upload wishes, and the bytes that take its body's place, if any do."""


READING = Needs("models", or_read_with="lookup")


class UploadAnswer(ModelAnswer):
    """An upload: its bytes are kept until it has ended."""

    address = serializers.SerializerMethodField(help_text="Where this is asked for again.")
    page = serializers.SerializerMethodField(help_text="The page with its progress.")
    model = serializers.IntegerField(source="model_id", allow_null=True, help_text="Once it is done.")
    plan = serializers.IntegerField(source="plan_id", allow_null=True, help_text="Once it is done.")
    state = serializers.ChoiceField(UploadState.choices)
    reason = serializers.CharField(help_text="Why it was refused, or given up.")

    class Meta:
        model = Upload
        fields = [
            "id", "kind", "name", "state", "reason", "doing", "operators_done", "operators_total",
            "size_bytes", "model", "plan", "address", "page", "created_at", "started_at", "finished_at",
        ]  # fmt: skip

    def get_address(self, row: Upload) -> str:
        return address_of(row)

    def get_page(self, row: Upload) -> str:
        return f"/models/uploads/{row.pk}/"


class UploadBody:
    """A request's body, not read yet."""

    def __init__(self, stream: IO[bytes], max_bytes: int) -> None:
        self._stream, self._max_bytes = stream, max_bytes

    def receive(self, wish: Callable[[bytes | None, models.ApiKey], Given], key: models.ApiKey) -> Upload:
        """Take it in. ``wish`` is given the body where it is small, else None, and may refuse it."""
        head = self._stream.read(SMALL_BYTES + 1)
        given = wish(head if len(head) <= SMALL_BYTES else None, key)
        wished, replaced = given if isinstance(given, tuple) else (given, None)
        read = _after(head, self._stream.read) if replaced is None else BytesIO(replaced).read
        try:
            return intake.receive(read, wished, key.organisation, key, self._max_bytes)
        except QuotaUsed:
            self._read_on()
            raise

    def _read_on(self) -> None:
        """Most clients read no answer before they have sent everything, and would see a broken line."""
        for _ in range(READ_ON_BYTES // SMALL_BYTES):
            if not self._stream.read(SMALL_BYTES):
                return


def body_of(request: Request) -> UploadBody:
    """Raises RequestError for a request without one."""
    if not isinstance(request.data, UploadBody):  # an empty one is not parsed at all
        raise RequestError(intake.EMPTY)
    return request.data


def _after(head: bytes, rest: Callable[[int], bytes]) -> Callable[[int], bytes]:
    first = BytesIO(head)
    return lambda count: first.read(count) or rest(count)


class UploadParser(BoundedParser):
    """Leaves the body where it is; what announces itself as too large is refused unread."""

    def parse(
        self,
        stream: IO[bytes],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        self.check_announced(parser_context)
        return UploadBody(stream, self.max_bytes)

    def too_large(self) -> Any:
        from tuning.uploads.storage import too_large

        return too_large(self.max_bytes)


def answer_upload(row: Upload, wait_s: float | None, shown: Callable[[Upload], Any]) -> Response:
    """What came of an upload, where that is known in time: 201 or 200 with ``shown``, a refusal as 400; else
    202 with where to ask. ``wait_s``: None where nothing was said."""
    if wait_s is None:
        wait_s = WAIT_S if row.size_bytes <= WAITED_FOR_BYTES else 0.0
    row = intake.await_end(row, wait_s)
    if row.state == UploadState.DONE:
        return Response(shown(row), status=201 if row.is_new else 200)
    if row.state in (UploadState.REFUSED, UploadState.CANCELLED, UploadState.DEAD):
        raise RequestError(row.reason or "The upload was cancelled.")
    return Response(UploadAnswer(row).data, status=202, headers={"Location": address_of(row)})


def address_of(row: Upload) -> str:
    return f"/api/v1/uploads/{row.pk}"


def wait_named(request: Request) -> float | None:
    """``wait_s`` of the query; None where there is none. Raises RequestError."""
    text = request.query_params.get("wait_s")
    if text is None:
        return None
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= MAX_WAIT_S:
        raise RequestError(f"wait_s is a number of seconds from 0 to {MAX_WAIT_S:g}.", where="wait_s")
    return wait_s


def _seen(key: models.ApiKey) -> QuerySet[Upload]:
    """The organisation's; models are shown to keys that may give some."""
    rows = Upload.objects.filter(organisation=key.organisation).order_by("-pk")
    return rows if "models" in key.scopes else rows.filter(kind=UploadKind.PLAN)


@listing(UploadAnswer)
class UploadsView(Listing[Upload]):
    """Uploads, the latest first: open ones, and the latest that have ended."""

    needs = READING

    def get_queryset(self) -> QuerySet[Upload]:
        return _seen(self.key)


class UploadView(RestView):
    needs = READING

    @operation(UploadAnswer)
    def get(self, request: Request, pk: int) -> Upload:
        """How far an upload is, and what came of it."""
        return one(_seen(self.key), pk, f"There is no upload {pk}: GET /api/v1/uploads/ lists them.")


class UploadCancelView(RestView):
    needs = Needs("models")

    @operation(UploadAnswer)
    def post(self, request: Request, pk: int) -> Upload:
        """Stop an upload; one that has ended stays as it is."""
        row = one(_seen(self.key), pk, f"There is no upload {pk}: GET /api/v1/uploads/ lists them.")
        intake.cancel(row)
        row.refresh_from_db()
        return row


urlpatterns = [
    path("uploads/", UploadsView.as_view()),
    path("uploads/<int:pk>", UploadView.as_view()),
    path("uploads/<int:pk>/cancel", UploadCancelView.as_view(), name="api-upload-cancel"),
]
