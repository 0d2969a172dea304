"""Artifacts: the manifest with its signature, and the files it names."""

from __future__ import annotations

import re
from typing import Any

from django.http import FileResponse, HttpResponse, HttpResponseNotModified
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.api.authentication import key_of
from catalog.api.describing import errors, path
from catalog.api.serializers import ArtifactSerializer
from catalog.errors import StoreError, Unknown
from catalog.selectors import known
from catalog.selectors.served import scopes_of
from catalog.services.artifacts import file_path

_SHA256 = path("sha256", "^[0-9a-f]{64}$", "The artifact's address.")


class ArtifactView(APIView):
    @extend_schema(
        operation_id="artifact",
        tags=["artifacts"],
        summary="An artifact's manifest and signature",
        parameters=[_SHA256],
        responses={200: ArtifactSerializer, **errors(404)},
    )
    def get(self, request: Request, sha256: str) -> Response:
        row = known.artifact(sha256, scopes_of(key_of(request).organisation))
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
        description="The ETag is the file's SHA-256 from the manifest: compare before loading.",
        parameters=[_SHA256, path("name", "^[A-Za-z0-9_.+-]+$", "A plain file name from the manifest.")],
        responses={
            (200, "application/octet-stream"): OpenApiTypes.BINARY,
            304: OpenApiResponse(description="If-None-Match has it already."),
            **errors(404),
        },
    )
    def get(self, request: Request, sha256: str, name: str) -> Any:
        row = known.artifact(sha256, scopes_of(key_of(request).organisation))
        # The name is only ever compared with the manifest's; the path is made of the file's digest.
        digest = row.manifest["files"].get(name)
        if digest is None:
            raise Unknown("The artifact has no file with this name: its manifest lists them.")
        etag = f'"{digest}"'
        if _matches(request.headers.get("If-None-Match", ""), etag):
            response: HttpResponse | FileResponse = HttpResponseNotModified()
        else:
            response = _file(digest, name)
        response["ETag"] = etag
        response["Cache-Control"] = "private, max-age=31536000, immutable"
        return response


def _file(digest: str, name: str) -> FileResponse:
    try:
        opened = file_path(digest).open("rb")
    except OSError as error:
        raise StoreError(f"The store has lost the file {name}.") from error
    return FileResponse(opened, as_attachment=True, filename=name, content_type="application/octet-stream")


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in re.findall(r'"[^"]*"', header)
