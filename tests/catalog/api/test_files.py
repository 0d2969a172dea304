"""Artifact files over HTTP: ETags, ranges, HEAD."""

import pytest

from catalog import models
from tests.catalog.making import write_file

CONTENT = bytes(range(256)) * 700  # more than one chunk


@pytest.fixture
def get(api, put, tmp_path):
    files = write_file(tmp_path / "build", "kernel.so", CONTENT)
    put(64, "tvm", 2.0, kind="c-abi", needs={}, files=files, folder=tmp_path / "build")
    row = models.Artifact.objects.get()

    def ask(verb="get", **headers):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"/api/v1/artifacts/{row.sha256}/files/kernel.so"
        return getattr(api.client, verb)(url, headers=api.headers | named)

    ask.etag = f'"{row.manifest["files"]["kernel.so"]}"'
    return ask


def body(response):
    return b"".join(response.streaming_content) if response.streaming else response.content


def test_the_whole_file_may_be_kept_for_ever(get):
    response = get()
    assert (response.status_code, body(response)) == (200, CONTENT)
    assert response["Content-Length"] == str(len(CONTENT))
    assert response["ETag"] == get.etag
    assert response["Accept-Ranges"] == "bytes"
    assert "immutable" in response["Cache-Control"]
    assert "Content-Range" not in response


@pytest.mark.parametrize(
    ("asked", "first", "last"),
    [
        ("bytes=0-0", 0, 0),
        ("bytes=10-19", 10, 19),
        ("bytes=70000-140000", 70_000, 140_000),
        ("bytes=179000-", 179_000, len(CONTENT) - 1),
        ("bytes=0-", 0, len(CONTENT) - 1),
        ("bytes=-5", len(CONTENT) - 5, len(CONTENT) - 1),
        ("bytes=-9999999", 0, len(CONTENT) - 1),
        ("bytes=100-99999999", 100, len(CONTENT) - 1),
    ],
)
def test_a_part_of_it(get, asked, first, last):
    response = get(Range=asked)
    assert (response.status_code, body(response)) == (206, CONTENT[first : last + 1])
    assert response["Content-Range"] == f"bytes {first}-{last}/{len(CONTENT)}"
    assert response["Content-Length"] == str(last - first + 1)
    assert response["ETag"] == get.etag


@pytest.mark.parametrize("asked", [f"bytes={len(CONTENT)}-", "bytes=999999-1000000", "bytes=-0"])
def test_beyond_the_end_is_416_and_says_the_size(get, asked):
    response = get(Range=asked)
    assert (response.status_code, body(response)) == (416, b"")
    assert response["Content-Range"] == f"bytes */{len(CONTENT)}"


@pytest.mark.parametrize(
    "asked",
    ["bytes=5-2", "bytes=-", "bytes=a-b", "lines=1-2", "bytes=0-1,3-4", "", "bytes=" + "9" * 40 + "-"],
)
def test_what_is_no_single_range_is_answered_with_the_whole(get, asked):
    response = get(Range=asked)
    assert (response.status_code, len(body(response))) == (200, len(CONTENT))


def test_a_part_is_continued_only_of_the_same_content(get):
    assert get(Range="bytes=5-9", If_Range=get.etag).status_code == 206
    for other in ('"another"', f"W/{get.etag}", "Sat, 21 Nov 2026 06:00:00 GMT"):
        response = get(Range="bytes=5-9", If_Range=other)
        assert (response.status_code, len(body(response))) == (200, len(CONTENT))


@pytest.mark.parametrize("prefix", ["", "W/", '"x", '])
def test_what_the_client_has_is_not_sent_whatever_the_range(get, prefix):
    response = get(If_None_Match=prefix + get.etag, Range="bytes=0-3")
    assert (response.status_code, body(response), response["ETag"]) == (304, b"", get.etag)


def test_head_says_everything_and_sends_nothing(get):
    response = get("head", Range="bytes=0-3")
    assert (response.status_code, body(response)) == (200, b"")
    assert response["Content-Length"] == str(len(CONTENT))
    assert response["ETag"] == get.etag
    assert get("head", If_None_Match=get.etag).status_code == 304


def test_an_empty_file(api, put, tmp_path):
    files = write_file(tmp_path / "build", "empty", b"")
    put(64, "tvm", 2.0, kind="c-abi", needs={}, files=files, folder=tmp_path / "build")
    row = models.Artifact.objects.get()
    url = f"/api/v1/artifacts/{row.sha256}/files/empty"
    assert body(api.client.get(url, headers=api.headers)) == b""
    assert api.client.get(url, headers=api.headers | {"Range": "bytes=0-"}).status_code == 416
