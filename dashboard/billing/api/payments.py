"""Money that comes in: credit by hand, and payments that a provider reports."""

from __future__ import annotations

from typing import Any

from django.urls import path
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.describing import ErrorSerializer, header, in_path
from catalog.api.endpoint import MAX_ID, operation
from catalog.api.parsers import BoundedJSONParser, BoundedParser, parse_json
from catalog.errors import TooLarge, Unknown
from catalog.models import Organisation
from catalog.people import audit
from dashboard.billing import accounts, payments
from dashboard.billing.accounts import CURRENCIES, MOST_MICROS
from dashboard.billing.api.account import EntrySerializer
from dashboard.billing.api.base import PricingView, by
from dashboard.billing.models import LedgerEntry


class CreditRequestSerializer(serializers.Serializer[Any]):
    """Credit by hand; below zero a correction."""

    organisation = serializers.IntegerField(min_value=1, max_value=MAX_ID)
    amount_micros = serializers.IntegerField(min_value=-MOST_MICROS, max_value=MOST_MICROS)
    currency = serializers.ChoiceField(choices=CURRENCIES)
    reason = serializers.CharField(max_length=300)


class PaymentDataSerializer(serializers.Serializer[Any]):
    account = serializers.CharField(max_length=40, help_text="The account's reference: acct_…")
    amount_micros = serializers.IntegerField(min_value=1, max_value=MOST_MICROS)
    currency = serializers.CharField(min_length=3, max_length=3)
    reference = serializers.CharField(required=False, max_length=200, help_text="The payment's, for people.")
    payment = serializers.CharField(
        required=False, max_length=200, help_text="Of a refund, which needs it: the payment's webhook-id."
    )


class PaymentSerializer(serializers.Serializer[Any]):
    type = serializers.ChoiceField(choices=["payment.succeeded", "payment.refunded"])
    data = PaymentDataSerializer()  # type: ignore[assignment]


class PaymentAnswerSerializer(serializers.Serializer[Any]):
    entry = serializers.IntegerField(help_text="The ledger entry.")
    repeated = serializers.BooleanField(help_text="The event was known: nothing was added.")
    balance_micros = serializers.IntegerField(help_text="After that entry.")


class CreditView(PricingView):
    @operation(EntrySerializer, name="billing_credit", status=201, takes=CreditRequestSerializer)
    def post(self, request: Request) -> LedgerEntry:
        """Give an organisation credit by hand, with a reason; below zero a correction."""
        given = self.sent(CreditRequestSerializer)
        row = Organisation.objects.filter(pk=given["organisation"]).first()
        if row is None:
            raise Unknown("There is no organisation with this number.", where="organisation")
        return accounts.give_credit(
            row, given["amount_micros"], given["reason"], currency=given["currency"], by=by(request)
        )


class _Raw(BoundedParser):
    """The body as it came: a signature is over its bytes."""

    media_type = BoundedJSONParser.media_type
    max_bytes = BoundedJSONParser.max_bytes

    def too_large(self) -> TooLarge:
        return TooLarge(f"The body is larger than {self.max_bytes >> 10} KiB.")


class PaymentView(APIView):
    """No API key: the message itself is signed."""

    authentication_classes = []
    permission_classes = []
    parser_classes = [_Raw]

    @extend_schema(
        operation_id="billing_payment",
        tags=["billing"],
        summary="An incoming payment, signed by its provider",
        description=(
            "In the Standard Webhooks form: webhook-signature is `v1,` and the base64 of HMAC-SHA-256 over "
            "`id.timestamp.body` with the provider's secret. An event is booked once, however often it is "
            "sent; its time may be 5 minutes from ours."
        ),
        auth=[],
        parameters=[
            in_path("provider", "^[a-z0-9_-]{1,40}$", "Who reports: one that has a secret here."),
            header("webhook-id", "The event's id."),
            header("webhook-timestamp", "Seconds since 1970."),
            header("webhook-signature", "v1,… (several are separated by spaces)."),
        ],
        request=PaymentSerializer,
        responses={
            200: PaymentAnswerSerializer,
            **{
                status: OpenApiResponse(ErrorSerializer, description=what)
                for status, what in {
                    400: "The message is signed, and not understood.",
                    401: "The signature or the time does not count.",
                    404: "No such provider, no such account, or no such payment to refund.",
                    409: "The event came before with another content, or less is left of the payment.",
                    413: "The body is too large.",
                    415: "The body must be JSON.",
                    503: "The service itself failed; try again in a moment.",
                }.items()
            },
        },
    )
    def post(self, request: Request, provider: str) -> Response:
        keys = payments.secrets_of(provider)
        body = request.data if isinstance(request.data, bytes) else b""
        event_id = payments.verify(keys, request.headers, body)
        audit.note(request._request, skip=True)  # the payment is written down with its entry
        got = payments.receive(provider, event_id, body, parse_json(body))
        return Response(
            {
                "entry": got.entry.pk,
                "repeated": got.repeated,
                "balance_micros": got.entry.balance_after_micros,
            }
        )


urlpatterns = [
    path("billing/credit", CreditView.as_view(), name="billing-credit-giving"),
    path("billing/payments/<slug:provider>", PaymentView.as_view(), name="billing-payment"),
]
