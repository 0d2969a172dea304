"""The page of an upload: progress, refusal, cancelling; and who sees it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from tests import uploading
from tests.tuning.graph import making
from tuning.uploads import sandboxed, storage
from tuning.uploads.models import Upload

HTMX = {"HX-Request": "true"}


@pytest.fixture(autouse=True)
def own_store(configure: Any, tmp_path: Path) -> None:
    configure(store=tmp_path / "store")


def give(pages: Client, data: bytes = b"rubbish", name: str = "mine") -> Upload:
    answer = pages.post("/models/", {"file": SimpleUploadedFile("m.onnx", data), "name": name})
    assert answer.status_code == 302, answer.content
    return Upload.objects.latest("pk")


def test_what_waits_says_so_and_can_be_cancelled(pages: Client) -> None:
    row = give(pages)
    html = pages.get(f"/models/uploads/{row.pk}/").content.decode()
    assert "No worker is there" in html and 'hx-trigger="every 1s"' in html
    assert "mine" in pages.get("/models/").content.decode()
    answer = pages.post(f"/models/uploads/{row.pk}/cancel/", follow=True).content.decode()
    assert "It was cancelled" in answer and "every 1s" not in answer
    assert storage.kept() == []


def test_a_refusal_is_shown_where_it_was_given_and_on_the_list(
    pages: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    row = give(pages)
    monkeypatch.setattr(sandboxed, "take_apart", uploading.in_process)
    uploading.run_all(tmp_path)
    for path in (f"/models/uploads/{row.pk}/", "/models/"):
        assert "no complete ONNX file" in pages.get(path).content.decode()


def test_one_that_is_done_leads_to_its_model(pages: Client, uploads_at_once: None) -> None:
    row = give(pages, making.relu([4]).SerializeToString())
    report = f"/models/{row.model_id}/"
    assert pages.get(f"/models/uploads/{row.pk}/").url == report
    assert pages.get(f"/models/uploads/{row.pk}/", headers=HTMX)["HX-Redirect"] == report


def test_one_too_many_is_refused_and_said(pages: Client, configure: Any) -> None:
    configure(uploads_per_key=1)
    give(pages)
    answer = pages.post("/models/", {"file": SimpleUploadedFile("m.onnx", b"x"), "name": "two"})
    assert answer.status_code == 400 and "which is the quota" in answer.content.decode()
    assert Upload.objects.count() == 1


def test_names_are_shown_as_text(pages: Client) -> None:
    row = give(pages, name="<script>alert(1)</script>")
    assert "<script>alert" not in pages.get(f"/models/uploads/{row.pk}/").content.decode()
