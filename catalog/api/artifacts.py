"""Artifacts: the manifest with its signature, the files it names, and whose signatures count."""

from __future__ import annotations

from typing import Any

from django.http.response import HttpResponseBase
from django.urls import path
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema_field
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request

from catalog import models
from catalog.api.describing import header, in_path
from catalog.api.endpoint import Listing, RestView, listing, operation
from catalog.api.files import send_file
from catalog.api.shapes import Document, ModelAnswer
from catalog.best.artifacts import file_path
from catalog.best.served import scopes_of
from catalog.best.vouching import check_whole
from catalog.charging import check_artifact
from catalog.errors import Unknown
from catalog.selectors import known

_SHA256 = in_path("sha256", "^[0-9a-f]{64}$", "The artifact's address.")


class FileSerializer(serializers.Serializer[Any]):
    name = serializers.CharField()
    sha256 = serializers.CharField()
    url = serializers.CharField()


class ArtifactAnswer(ModelAnswer):
    """A manifest: its canonical JSON has the SHA-256 ``sha256`` and is what ``signature`` signs (Ed25519)."""

    manifest = Document()
    files = serializers.SerializerMethodField()

    class Meta:
        model = models.Artifact
        fields = ["sha256", "kind", "manifest", "signature", "signer", "size_bytes", "files"]

    @extend_schema_field(FileSerializer(many=True))
    def get_files(self, row: models.Artifact) -> list[dict[str, str]]:
        return [
            {"name": name, "sha256": digest, "url": f"/api/v1/artifacts/{row.sha256}/files/{name}"}
            for name, digest in sorted(row.manifest["files"].items())
        ]


class SignerAnswer(serializers.ModelSerializer[models.Signer]):
    """A public key. ``public_key`` is raw Ed25519, 32 bytes in hexadecimal; ``sha256`` is its digest."""

    class Meta:
        model = models.Signer
        fields = ["sha256", "public_key", "created_at", "retired_at"]


class ArtifactView(RestView):
    @operation(ArtifactAnswer, name="artifact", parameters=[_SHA256], fails=[402])
    def get(self, request: Request, sha256: str) -> models.Artifact:
        """An artifact's manifest and signature.

        What is damaged in the store is a 503 until it was built again; so are its files."""
        row = _artifact(self, sha256)
        check_whole(row)
        return row


class AnyAccept(BaseContentNegotiation):
    """A file is sent as it is, whatever type the client would like."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        return parsers[0]

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class ArtifactFileView(RestView):
    content_negotiation_class = AnyAccept

    @operation(
        name="artifact_file",
        parameters=[
            _SHA256,
            in_path("name", "^[A-Za-z0-9_.+-]+$", "A plain file name from the manifest."),
            header("Range", "bytes=0-1023, bytes=1024- or bytes=-512."),
            header("If-Range", "The ETag of what the client has a part of."),
            header("If-None-Match", "ETags of what the client has."),
        ],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            (206, "application/octet-stream"): OpenApiTypes.BINARY,
            304: OpenApiResponse(description="If-None-Match has it already."),
            416: OpenApiResponse(description="The range lies outside of the file."),
        },
        fails=[402],
    )
    def get(self, request: Request, sha256: str, name: str) -> HttpResponseBase:
        """One of an artifact's files.

        The ETag is the file's SHA-256 from the manifest: compare before loading. One byte range can be
        asked for; with If-Range only of the file that the client began to read."""
        row = _artifact(self, sha256)
        # The name is only ever compared with the manifest's; the path is made of the file's digest.
        digest = row.manifest["files"].get(name)
        if digest is None:
            raise Unknown("The artifact has no file with this name: its manifest lists them.")
        check_whole(row, name)
        response = send_file(request._request, file_path(digest), name, f'"{digest}"')
        response["Cache-Control"] = "private, max-age=31536000, immutable"
        return response


@listing(SignerAnswer, name="signers", tag="artifacts")
class SignersView(Listing[models.Signer]):
    """Public keys that sign manifests.

    What a retired key has signed must be refused. Private keys are the workers' own."""

    queryset = models.Signer.objects.order_by("-pk")


def _artifact(asked: RestView, sha256: str) -> models.Artifact:
    """Visible to the key, and not withheld from it."""
    scopes = scopes_of(asked.key.organisation)
    row = known.artifact(sha256, scopes)
    check_artifact(asked.viewer.payer, scopes, row)
    return row


urlpatterns = [
    path("signers/", SignersView.as_view(), name="signer-list"),
    path("artifacts/<sha256:sha256>", ArtifactView.as_view(), name="artifact"),
    path(
        "artifacts/<sha256:sha256>/files/<plain_name:name>", ArtifactFileView.as_view(), name="artifact-file"
    ),
]
