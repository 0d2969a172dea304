"""A file over HTTP: conditional and by range (RFC 9110), which Django's FileResponse does not know."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified, StreamingHttpResponse
from django.http.response import HttpResponseBase

from catalog.errors import StoreError

_CHUNK_BYTES = 1 << 16
_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")


def send_file(request: HttpRequest, path: Path, name: str, etag: str) -> HttpResponseBase:
    """The file, a part of it (206), or that the client has it already (304); 416 beyond its end. ``etag``: a
    strong one with quotes, the content's digest. A request for several ranges gets the whole file, as the
    standard allows. Raises :class:`StoreError` if the file is gone."""
    response: HttpResponseBase
    if _has(request.headers.get("If-None-Match", ""), etag):
        response = HttpResponseNotModified()
    else:
        response = _content(request, path, name, etag)
        response["Accept-Ranges"] = "bytes"
    response["ETag"] = etag
    return response


def _content(request: HttpRequest, path: Path, name: str, etag: str) -> HttpResponseBase:
    try:
        opened = path.open("rb")
    except OSError as error:
        raise StoreError(f"The store has lost the file {name}.") from error
    size = os.fstat(opened.fileno()).st_size
    asked = _asked(request, etag)
    first, last = _within(asked, size) if asked else (0, size - 1)
    if asked and first > last:
        opened.close()
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
    headers = {
        "Content-Type": "application/octet-stream",
        "Content-Length": str(last - first + 1),
        "Content-Disposition": f'attachment; filename="{name}"',
    }
    if asked:
        headers["Content-Range"] = f"bytes {first}-{last}/{size}"
    if request.method == "HEAD":
        opened.close()
        return HttpResponse(headers=headers)
    return StreamingHttpResponse(
        _read(opened, first, last - first + 1), status=206 if asked else 200, headers=headers
    )


def _asked(request: HttpRequest, etag: str) -> tuple[str, str] | None:
    """The requested range as two texts; None: the whole file."""
    found = _RANGE.fullmatch(request.headers.get("Range", "").strip())
    if request.method != "GET" or found is None or found.groups() == ("", ""):
        return None
    # Of another version than ours the client has a part that ours does not continue.
    if request.headers.get("If-Range", etag).strip() != etag:
        return None
    first, last = found.groups()
    return None if first and last and int(first) > int(last) else (first, last)


def _within(asked: tuple[str, str], size: int) -> tuple[int, int]:
    """First and last byte; the first is beyond the last if the range is outside the file."""
    first, last = asked
    if not first:
        return (max(0, size - int(last)), size - 1) if int(last) else (size, size - 1)
    return int(first), min(int(last), size - 1) if last else size - 1


def _read(opened: BinaryIO, first: int, length: int) -> Iterator[bytes]:
    with opened:
        opened.seek(first)
        while length and (chunk := opened.read(min(_CHUNK_BYTES, length))):
            length -= len(chunk)
            yield chunk


def _has(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in re.findall(r'"[^"]*"', header)
