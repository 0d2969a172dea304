"""The network that predicts which operators come next: a client fetches it and runs it itself."""

from __future__ import annotations

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request

from catalog import models
from catalog.api.artifacts import AnyAccept
from catalog.api.describing import in_path
from catalog.api.endpoint import RestView, operation
from catalog.api.files import send_file
from catalog.api.shapes import Document, ModelAnswer
from catalog.best.artifacts import file_path
from catalog.best.served import scopes_of
from catalog.selectors import predicted


class PredictorAnswer(ModelAnswer):
    """``signature`` is over the canonical JSON of ``document``, which names the file by its SHA-256."""

    document = Document()

    class Meta:
        model = models.PredictorNetwork
        fields = ["version", "document", "signature", "signer", "created_at"]


class PredictorView(RestView):
    @operation(PredictorAnswer, name="predictor", tag="lookup", fails=(404,))
    def get(self, request: Request) -> models.PredictorNetwork:
        """The newest network for the caller's organisation.

        One that learnt from the organisation's own jobs comes before the shared one. 404 where none was
        trained."""
        return predicted.network_of(scopes_of(self.key.organisation))


class PredictorFileView(RestView):
    content_negotiation_class = AnyAccept

    @operation(
        name="predictor_file",
        tag="lookup",
        parameters=[in_path("sha256", "^[0-9a-f]{64}$", "The file's SHA-256, from the document.")],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY},
    )
    def get(self, request: Request, sha256: str) -> HttpResponseBase:
        """A network's file: an ONNX model."""
        row = predicted.network_with(sha256, scopes_of(self.key.organisation))
        return send_file(request._request, file_path(row.sha256), "predictor.onnx", f'"{row.sha256}"')


urlpatterns = [
    path("predictor", PredictorView.as_view(), name="predictor"),
    path("predictor/<sha256:sha256>", PredictorFileView.as_view(), name="predictor-file"),
]
