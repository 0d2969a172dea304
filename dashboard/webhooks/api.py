"""Webhooks over REST. Views validate, then call a service; rows of other organisations do not exist."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import generics
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors
from catalog.errors import Unknown
from catalog.viewing import viewer_of_key
from dashboard.webhooks import endpoints, keeping, selectors
from dashboard.webhooks.api.serializers import (
    AttemptSerializer,
    DeliveryDetailSerializer,
    DeliverySerializer,
    EndpointChangeSerializer,
    EndpointSerializer,
    EndpointWithSecretSerializer,
    EndpointWriteSerializer,
    ReplayedSerializer,
    ReplaySerializer,
    WhySerializer,
)
from dashboard.webhooks.delivering import body_of
from dashboard.webhooks.models import Delivery, DeliveryState, Endpoint, EventType
from dashboard.webhooks.selectors import DeliveryFilters
from tuning.api import filters

SCOPE = "billing"
TRIES_SHOWN = 200
_WRITE_ERRORS = (400, 404, 409, 413, 415)


class Endpoints(generics.ListAPIView):  # type: ignore[type-arg]
    """Receivers of this organisation, the oldest first."""

    required_scope = SCOPE
    serializer_class = EndpointSerializer
    queryset = Endpoint.objects.none()

    def get_queryset(self) -> QuerySet[Endpoint]:
        return _endpoints(self.request)

    @extend_schema(
        request=EndpointWriteSerializer,
        responses={201: EndpointWithSecretSerializer, **errors(400, 409, 413, 415)},
    )
    def post(self, request: Request) -> Response:
        """Add a receiver; the answer has its signing secret, this once."""
        asked = _checked(EndpointWriteSerializer, request)
        row, secret = endpoints.create(
            key_of(request).organisation,
            asked["url"],
            description=asked.get("description", ""),
            event_types=asked.get("event_types", ()),
        )
        return _with_secret(row, secret, 201)


class EndpointDetail(APIView):
    """One receiver."""

    required_scope = SCOPE

    @extend_schema(responses=EndpointSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """One receiver and how it does."""
        return Response(EndpointSerializer(_endpoint(request, pk)).data)

    @extend_schema(
        request=EndpointChangeSerializer, responses={200: EndpointSerializer, **errors(*_WRITE_ERRORS)}
    )
    def patch(self, request: Request, pk: int) -> Response:
        """Change the address, the description or what it is told about."""
        row = endpoints.change(_endpoint(request, pk), **_checked(EndpointChangeSerializer, request))
        return Response(EndpointSerializer(row).data)

    @extend_schema(responses={204: None})
    def delete(self, request: Request, pk: int) -> Response:
        """Delete a receiver with its deliveries."""
        endpoints.delete(_endpoint(request, pk))
        return Response(status=204)


class RotateSecret(APIView):
    required_scope = SCOPE

    @extend_schema(request=None, responses=EndpointWithSecretSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Make a new secret, valid at once and shown this once; the old one signs along for 24 hours."""
        row = _endpoint(request, pk)
        return _with_secret(row, endpoints.rotate(row), 200)


class TestEndpoint(APIView):
    required_scope = SCOPE

    @extend_schema(request=None, responses=DeliverySerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Send an `endpoint.test` to this receiver, whatever it is told about."""
        row = _endpoint(request, pk)
        message = endpoints.test(row)
        found = selectors.deliveries(viewer_of_key(key_of(request)), DeliveryFilters(endpoint=row.pk))
        return Response(DeliverySerializer(found.get(message=message)).data)


class DisableEndpoint(APIView):
    required_scope = SCOPE

    @extend_schema(request=WhySerializer, responses=EndpointSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Send nothing more; what waits is kept."""
        row = _endpoint(request, pk)
        endpoints.disable(row, _checked(WhySerializer, request).get("reason") or "Disabled by hand.")
        row.refresh_from_db()
        return Response(EndpointSerializer(row).data)


class EnableEndpoint(APIView):
    required_scope = SCOPE

    @extend_schema(request=None, responses=EndpointSerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Send again, what waits first."""
        row = _endpoint(request, pk)
        endpoints.enable(row)
        row.refresh_from_db()
        return Response(EndpointSerializer(row).data)


class Deliveries(generics.ListAPIView):  # type: ignore[type-arg]
    """Messages on their way and those that have ended, the latest first."""

    required_scope = SCOPE
    serializer_class = DeliverySerializer
    queryset = Delivery.objects.none()

    @extend_schema(
        parameters=[
            OpenApiParameter("endpoint", int, description="Only to this receiver."),
            OpenApiParameter("state", str, description=f"Some of {', '.join(DeliveryState.values)}."),
            OpenApiParameter("event_type", str, description=f"Some of {', '.join(EventType.values)}."),
        ]
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)

    def get_queryset(self) -> QuerySet[Delivery]:
        asked = DeliveryFilters(
            endpoint=filters.number(self.request, "endpoint"),
            states=tuple(filters.choices(self.request, "state", DeliveryState.values)),
            event_types=tuple(filters.choices(self.request, "event_type", EventType.values)),
        )
        return selectors.deliveries(viewer_of_key(key_of(self.request)), asked)


class DeliveryDetail(APIView):
    """One delivery."""

    required_scope = SCOPE

    @extend_schema(responses=DeliveryDetailSerializer)
    def get(self, request: Request, pk: int) -> Response:
        """One delivery with what is sent and every try."""
        row = _delivery(request, pk)
        tries = selectors.attempts(row)[:TRIES_SHOWN]
        return Response(
            {
                **DeliverySerializer(row).data,
                "body": body_of(row.message),
                "attempts": AttemptSerializer(tries, many=True).data,
            }
        )


class ReplayDelivery(APIView):
    required_scope = SCOPE

    @extend_schema(request=None, responses=DeliverySerializer)
    def post(self, request: Request, pk: int) -> Response:
        """Send one message again, under its own id; one that waits is tried at once."""
        keeping.replay(_delivery(request, pk))
        return Response(DeliverySerializer(_delivery(request, pk)).data)


class Replay(APIView):
    required_scope = SCOPE

    @extend_schema(request=ReplaySerializer, responses=ReplayedSerializer)
    def post(self, request: Request) -> Response:
        """Send everything since a time again to one receiver, what it missed while disabled included."""
        asked = _checked(ReplaySerializer, request)
        row = _endpoint(request, asked["endpoint"])
        count = keeping.replay_since(row, asked["since"], failed_only=asked["failed_only"])
        return Response({"messages": count})


def _endpoints(request: Request) -> QuerySet[Endpoint]:
    return Endpoint.objects.filter(viewer_of_key(key_of(request)).owned()).order_by("pk")


def _endpoint(request: Request, pk: int) -> Endpoint:
    row = _endpoints(request).filter(pk=pk).first()
    if row is None:
        raise Unknown(f"There is no endpoint {pk}.")
    return row


def _delivery(request: Request, pk: int) -> Delivery:
    row = selectors.deliveries(viewer_of_key(key_of(request)), DeliveryFilters()).filter(pk=pk).first()
    if row is None:
        raise Unknown(f"There is no delivery {pk}.")
    return row


def _with_secret(row: Endpoint, secret: str, status: int) -> Response:
    return Response({**EndpointSerializer(row).data, "secret": secret}, status=status)


def _checked(shape: type[Any], request: Request) -> dict[str, Any]:
    serializer = shape(data=request.data)
    serializer.is_valid(raise_exception=True)
    return serializer.validated_data
