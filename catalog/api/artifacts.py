"""Artifacts: the manifest with its signature, and the files it names."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.generics import ListAPIView
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog import models
from catalog.api.authentication import key_of
from catalog.api.describing import errors, header, path
from catalog.api.files import send_file
from catalog.api.serializers import ArtifactSerializer, SignerSerializer
from catalog.best.artifacts import file_path
from catalog.best.served import scopes_of
from catalog.charging import check_artifact
from catalog.errors import Unknown
from catalog.selectors import known
from catalog.viewing import viewer_of_key

_SHA256 = path("sha256", "^[0-9a-f]{64}$", "The artifact's address.")


def _artifact(request: Request, sha256: str) -> models.Artifact:
    """Visible to the key, and not withheld from it."""
    key = key_of(request)
    scopes = scopes_of(key.organisation)
    row = known.artifact(sha256, scopes)
    check_artifact(viewer_of_key(key).payer, scopes, row)
    return row


class ArtifactView(APIView):
    @extend_schema(
        operation_id="artifact",
        tags=["artifacts"],
        summary="An artifact's manifest and signature",
        parameters=[_SHA256],
        responses={200: ArtifactSerializer, **errors(402, 404)},
    )
    def get(self, request: Request, sha256: str) -> Response:
        row = _artifact(request, sha256)
        files = [
            {"name": name, "sha256": digest, "url": f"/api/v1/artifacts/{row.sha256}/files/{name}"}
            for name, digest in sorted(row.manifest["files"].items())
        ]
        return Response(
            {
                "sha256": row.sha256,
                "kind": row.kind,
                "manifest": row.manifest,
                "signature": row.signature,
                "signer": row.signer,
                "size_bytes": row.size_bytes,
                "files": files,
            }
        )


class _AnyAccept(BaseContentNegotiation):
    """A file is sent as it is, whatever type the client would like."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class ArtifactFileView(APIView):
    content_negotiation_class = _AnyAccept

    @extend_schema(
        operation_id="artifact_file",
        tags=["artifacts"],
        summary="One of an artifact's files",
        description=(
            "The ETag is the file's SHA-256 from the manifest: compare before loading. One byte range can be "
            "asked for; with If-Range only of the file that the client began to read."
        ),
        parameters=[
            _SHA256,
            path("name", "^[A-Za-z0-9_.+-]+$", "A plain file name from the manifest."),
            header("Range", "bytes=0-1023, bytes=1024- or bytes=-512."),
            header("If-Range", "The ETag of what the client has a part of."),
            header("If-None-Match", "ETags of what the client has."),
        ],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            304: OpenApiResponse(description="If-None-Match has it already."),
            416: OpenApiResponse(description="The range lies outside of the file."),
            **errors(402, 404),
        },
    )
    def get(self, request: Request, sha256: str, name: str) -> HttpResponseBase:
        row = _artifact(request, sha256)
        # The name is only ever compared with the manifest's; the path is made of the file's digest.
        digest = row.manifest["files"].get(name)
        if digest is None:
            raise Unknown("The artifact has no file with this name: its manifest lists them.")
        response = send_file(request._request, file_path(digest), name, f'"{digest}"')
        response["Cache-Control"] = "private, max-age=31536000, immutable"
        return response


class SignerListView(ListAPIView[models.Signer]):
    """Whose signatures on manifests count."""

    serializer_class = SignerSerializer
    queryset = models.Signer.objects.order_by("-pk")

    @extend_schema(
        operation_id="signers",
        tags=["artifacts"],
        summary="Public keys that sign manifests",
        description="What a retired key has signed must be refused. Private keys are the workers' own.",
        responses={200: SignerSerializer(many=True), **errors(400)},
    )
    def get(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().get(request, *args, **kwargs)
