"""Operators, implementations, targets, settings and artifacts, to read."""

import hashlib

import pytest

from catalog import models
from catalog.best.artifacts import file_path
from catalog.best.machine_code import keep_code
from catalog.usage.draining import drain_journal
from tests.catalog import making
from tests.catalog.making import write_file


class TestOperators:
    def test_pages_with_filters(self, api, place_of):
        for length in (8, 16, 24):
            place_of(length)
        page = api.get("operators/", limit=2).json()
        assert page["count"] == 3
        assert len(page["results"]) == 2
        assert api.get(page["next"].split("/api/v1/")[1]).json()["results"][0]["key"] == making.relu(8).key
        assert api.get("operators/", op_type="Relu", dtype="float32").json()["count"] == 3
        assert api.get("operators/", op_type="Conv").json()["count"] == 0
        assert api.get("operators/", q=making.relu(16).key[:20]).json()["count"] == 1

    @pytest.mark.parametrize(
        ("q", "said"),
        [
            ("relu route:tvmm", "There is no route “tvmm”: did you mean tvm?"),
            ("route=zzz", "There is no route “zzz”: there are eager, onnxruntime,"),
            ("relu axis=-1", "“axis=-1” finds nothing:"),
        ],
    )
    def test_a_search_that_can_find_nothing_is_refused(self, api, q, said):
        refused = api.get("operators/", q=q)
        assert (refused.status_code, refused.json()["where"]) == (400, "q")
        assert refused.json()["error"].startswith(said)
        assert api.get("operators/", q="relu route:tvm").json()["count"] == 0, "nobody has won by it yet"

    @pytest.mark.parametrize(
        "query",
        [
            {"limit": "0"}, {"limit": "201"}, {"limit": "x"}, {"limit": "9" * 30}, {"offset": "-1"},
            {"offset": "99999999999"}, {"op_type": "a b"}, {"op_type": "\0"}, {"dtype": "x" * 101},
            {"q": "x" * 101}, {"q": "a\0"}, {"limit": "²"},
        ],
    )  # fmt: skip
    def test_bad_queries_are_400(self, api, query):
        response = api.get("operators/", **query)
        assert response.status_code == 400
        assert next(iter(query)) in response.json()["error"]

    def test_one_with_its_graph_and_figures(self, api, ask, put):
        ask(64, job="a")
        put(64, "eager", 1.0)
        ask(64, job="b")
        drain_journal()
        answer = api.get(f"operators/{making.relu(64).key}").json()
        assert answer["graph"] == making.relu(64).to_json()
        assert answer["figures"] == {"jobs": 2, "hits": 1, "misses": 1, "hit_rate": 0.5}

    @pytest.mark.parametrize("key", ["o1:xyz", "o1:" + "0" * 64, "o1:" + "0" * 65, "%00", "..%2f..%2fetc"])
    def test_what_is_no_operator_is_404(self, api, key):
        response = api.get(f"operators/{key}")
        assert response.status_code == 404
        assert response.json()["error"]


class TestImplementations:
    def test_all_of_an_operator(self, api, put):
        put(64, "eager", 1.0)
        put(64, "tvm", 1.5)
        put(65, "tvm", 1.5)
        answer = api.get(f"operators/{making.relu(64).key}/implementations").json()
        assert [row["route"] for row in answer["results"]] == ["tvm", "eager"]
        answer = api.get(f"operators/{making.relu(64).key}/implementations", route="tvm").json()
        assert answer["count"] == 1
        assert answer["results"][0]["versions"] == {"torch": "2.13.0"}

    def test_one_with_its_evidence(self, api, put):
        published = put(64, "tvm", 1.5, schedule="s", source="code")
        put(64, "tvm", 1.4)
        answer = api.get(f"implementations/{published.implementation.pk}").json()
        assert (answer["operator"], answer["kind"]) == (making.relu(64).key, "recipe")
        assert len(answer["measurements"]) == 2
        assert answer["measurements"][0]["samples_us"]

    def test_its_machine_code_or_why_there_is_none(self, api, put, tmp_path):
        files = making.write_file(tmp_path / "built", "kernel.so", b"code")
        given = {"kind": "c-abi", "needs": {}, "files": files, "folder": tmp_path / "built"}
        row = put(64, "tvm", 1.5, **given).implementation
        path = f"implementations/{row.pk}"
        assert "Not read yet" in api.get(path).json()["machine_code"]["why_not"]
        keep_code(row, "opatlas_run:\n    1000:\tret", 4711, "objdump", "")
        assert api.get(path).json()["machine_code"] == {
            "text": "opatlas_run:\n    1000:\tret", "lines": 4711, "lines_kept": 2, "tool": "objdump",
            "why_not": "",
        }  # fmt: skip
        library = put(64, "eager", 1.0).implementation
        found = api.get(f"implementations/{library.pk}").json()["machine_code"]
        assert not found["text"] and "no code of its own" in found["why_not"]

    def test_private_ones_are_not_shown_to_others(self, api, put):
        other = models.Organisation.objects.create(name="other")
        hidden = put(64, "secret", 2.0, scope=f"org:{other.pk}", owner=other)
        assert api.get(f"operators/{making.relu(64).key}/implementations").json()["count"] == 0
        assert api.get(f"implementations/{hidden.implementation.pk}").status_code == 404
        assert api.get(f"artifacts/{hidden.implementation.artifact.sha256}").status_code == 404

    @pytest.mark.parametrize(
        "number", ["0", "9223372036854775807", "9223372036854775808", "9" * 19, "9" * 40, "-1", "x"]
    )
    def test_numbers_that_are_none_are_404(self, api, number):
        assert api.get(f"implementations/{number}").status_code == 404


class TestArtifacts:
    @pytest.fixture
    def artifact(self, put, tmp_path):
        files = write_file(tmp_path / "build", "kernel.so", b"\x7fELF code")
        put(64, "tvm", 2.0, kind="c-abi", needs={}, files=files, folder=tmp_path / "build")
        return models.Artifact.objects.get()

    def test_its_manifest_and_files(self, api, artifact):
        answer = api.get(f"artifacts/{artifact.sha256}").json()
        (file,) = answer["files"]
        assert file["sha256"] == hashlib.sha256(b"\x7fELF code").hexdigest()
        response = api.get(file["url"].removeprefix("/api/v1/"))
        assert b"".join(response.streaming_content) == b"\x7fELF code"
        assert response["Content-Type"] == "application/octet-stream"
        assert response["ETag"] == f'"{file["sha256"]}"'

    def test_the_manifest_hashes_to_its_address_after_the_wire(self, api, artifact):
        from opatlas.load import Manifest

        answer = api.get(f"artifacts/{artifact.sha256}").json()
        assert Manifest.from_json(answer["manifest"]).sha256 == artifact.sha256

    def test_a_file_that_the_client_has_is_not_sent_again(self, api, artifact):
        digest = artifact.manifest["files"]["kernel.so"]
        api.headers["If-None-Match"] = f'W/"x", "{digest}"'
        response = api.get(f"artifacts/{artifact.sha256}/files/kernel.so")
        assert response.status_code == 304
        assert response["ETag"] == f'"{digest}"'

    @pytest.mark.parametrize(
        "name",
        ["other.so", "..", "../kernel.so", "..%2f..%2fsecret_key", "%2fetc%2fpasswd", "kernel.so%00", ".",
         "kernel.so/", "a\\b", "%252e%252e", "x" * 500],
    )  # fmt: skip
    def test_path_tricks_find_nothing(self, api, artifact, name):
        response = api.get(f"artifacts/{artifact.sha256}/files/{name}")
        assert response.status_code == 404
        assert response.json()["error"]

    @pytest.mark.parametrize("sha256", ["0" * 64, "0" * 63, "G" * 64, "..", "%00" * 64])
    def test_unknown_addresses_are_404(self, api, sha256):
        assert api.get(f"artifacts/{sha256}").status_code == 404
        assert api.get(f"artifacts/{sha256}/files/kernel.so").status_code == 404

    def test_a_lost_file_is_the_services_fault(self, api, artifact):
        file_path(artifact.manifest["files"]["kernel.so"]).unlink()
        response = api.get(f"artifacts/{artifact.sha256}/files/kernel.so")
        assert response.status_code == 503
        assert "kernel.so is gone from the store" in response.json()["error"]


def test_targets_say_whether_they_are_served(api, target):
    (row,) = api.get("targets/").json()["results"]
    assert (row["key"], row["served"]) == (target.key, False)


def test_settings(api, setting):
    (row,) = api.get("settings/").json()["results"]
    assert (row["key"], row["threads"]) == (setting.key, 4)
