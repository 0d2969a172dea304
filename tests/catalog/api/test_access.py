"""Keys, scopes, unknown URLs and methods, the schema and its page."""

import io

import pytest

from catalog.models import ApiKey
from catalog.people.keys import create_api_key, expiry_of, revoke_api_key


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (None, "needed"),
        ("", "needed"),
        ("Basic abc", "Bearer"),
        ("Bearer", "Bearer"),
        ("Bearer nonsense", "no API key"),
        ("Bearer opk_aaaaaaaaaaaa_bbbb", "not known"),
        ("Bearer opk_\xff_x", "no API key"),
    ],
)
def test_without_a_valid_key_it_is_401(api_with, header, sentence):
    api = api_with(None)
    if header is not None:
        api.headers = {"Authorization": header}
    response = api.get("operators/")
    assert response.status_code == 401
    assert sentence in response.json()["error"]
    assert response["WWW-Authenticate"].startswith("Bearer")


def test_a_revoked_key_is_refused_at_once(api_with, make_key):
    text = make_key("lookup")
    api = api_with(text)
    assert api.get("operators/").status_code == 200
    revoke_api_key(text.split("_")[1])
    response = api.get("operators/")
    assert response.status_code == 401
    assert "revoked" in response.json()["error"]


def test_a_key_with_limits_is_made_and_says_them(api_with, make_key):
    admin = api_with(make_key("admin"))
    limits = {"expires_at": "2099-01-31T18:00:00Z", "addresses": ["192.0.2.0/24", "127.0.0.1"]}
    made = admin.post("keys/", {"name": "ci", "scopes": ["lookup"], **limits}).json()
    assert made["expires_at"] == limits["expires_at"]
    assert made["addresses"] == ["192.0.2.0/24", "127.0.0.1/32"]
    unlimited = admin.post("keys/", {"name": "ci", "scopes": ["lookup"]}).json()
    assert (unlimited["expires_at"], unlimited["addresses"]) == (None, None)
    api = api_with(made["key"])
    assert api.get("operators/").status_code == 200
    refused = api.client.get("/api/v1/operators/", headers=api.headers, REMOTE_ADDR="198.51.100.1")
    assert refused.status_code == 401
    assert refused.json()["error"] == "This API key is not for use from 198.51.100.1: ask where it is."
    ApiKey.objects.filter(pk=made["id"]).update(expires_at="2026-01-31T18:00:00Z")
    refused = api.get("operators/")
    assert refused.status_code == 401
    assert refused.json()["error"] == "This API key expired on 2026-01-31 18:00 UTC: ask for another one."


class TestAKeyThatIsLimited:
    """It makes none that may more than itself."""

    END = "2099-01-31T18:00:00Z"

    @pytest.fixture
    def admin(self, api_with, organisation):
        networks = ["127.0.0.0/24", "2001:db8::/32"]
        _, text = create_api_key(
            organisation, "limited", ["admin"], expires_at=expiry_of(self.END), addresses=networks
        )
        return api_with(text)

    def test_what_it_makes_has_its_limits(self, admin):
        made = admin.post("keys/", {"name": "ci", "scopes": ["lookup"]}).json()
        assert (made["expires_at"], made["addresses"]) == (self.END, ["127.0.0.0/24", "2001:db8::/32"])

    def test_narrower_ones_are_made(self, admin):
        limits = {"expires_at": "2098-01-31T18:00:00Z", "addresses": ["127.0.0.1", "2001:db8:1::/48"]}
        made = admin.post("keys/", {"name": "ci", "scopes": ["lookup"], **limits}).json()
        assert made["expires_at"] == limits["expires_at"]
        assert made["addresses"] == ["127.0.0.1/32", "2001:db8:1::/48"]

    @pytest.mark.parametrize(
        ("field", "wider"),
        [
            ("expires_at", "2099-01-31T18:00:01Z"),
            ("addresses", ["127.0.0.0/23"]),
            ("addresses", ["127.0.0.1", "198.51.100.1"]),
            ("addresses", ["::/0"]),
        ],
    )
    def test_wider_ones_are_refused(self, admin, field, wider):
        refused = admin.post("keys/", {"name": "ci", "scopes": ["lookup"], field: wider})
        assert refused.status_code == 400 and refused.json()["where"].startswith(field)
        assert ApiKey.objects.count() == 1


@pytest.mark.parametrize(("field", "wrong"), [
    ("expires_at", "soon"), ("expires_at", 7), ("expires_at", "2001-01-31T18:00:00Z"), ("addresses", "::1"),
    ("addresses", [7]), ("addresses", ["192.0.2.1/24"]), ("addresses", ["::1"] * 51),
    ("addresses", [["::1"]]),
])  # fmt: skip
def test_limits_that_are_none_make_no_key(api_with, make_key, field, wrong):
    admin = api_with(make_key("admin"))
    refused = admin.post("keys/", {"name": "ci", "scopes": ["lookup"], field: wrong})
    assert refused.status_code == 400 and refused.json()["where"].startswith(field)
    assert ApiKey.objects.count() == 1


def test_a_key_without_the_scope_is_403(api_with, make_key):
    response = api_with(make_key("models")).get("operators/")
    assert response.status_code == 403
    assert "'lookup'" in response.json()["error"]
    assert "models" in response.json()["error"]


def test_admin_may_do_all(api_with, make_key):
    assert api_with(make_key("admin")).get("operators/").status_code == 200


@pytest.mark.parametrize("path", ["", "nothing", "operators", "lookup/", "operators//", "%00", "a/../b"])
def test_unknown_urls_are_json_404s(api, path):
    response = api.get(path)
    assert response.status_code == 404
    assert response.json()["error"]


def test_a_wrong_method_is_405(api):
    response = api.get("lookup")
    assert response.status_code == 405
    assert response.json()["error"]


def test_the_schema_describes_every_path_and_is_open(api_with):
    from drf_spectacular.validation import validate_schema

    response = api_with(None).get("schema/", format="json")
    assert response.status_code == 200
    schema = response.json()
    validate_schema(schema)
    assert "bearer" in str(schema["components"]["securitySchemes"])
    operation = schema["paths"]["/api/v1/lookup"]["post"]
    assert {"200", "400", "401", "403", "404", "413", "415"} <= set(operation["responses"])


def test_the_schema_comes_without_warnings():
    from django.core.management import call_command

    call_command("spectacular", "--fail-on-warn", "--validate", stdout=io.StringIO())


def test_the_docs_page_loads_nothing_from_elsewhere(api_with):
    response = api_with(None).get("docs/")
    assert response.status_code == 200
    page = response.content.decode()
    assert "swagger" in page
    assert "//cdn" not in page
    assert "https://" not in page
