from datetime import datetime, timedelta

import pytest
from django.utils import timezone

from catalog import models
from catalog.errors import RequestError
from catalog.people.keys import KeyRefused, authenticate, create_api_key, expiry_of, revoke_api_key


def test_a_key_opens_for_its_text_and_only_its_hash_is_kept(organisation):
    key, text = create_api_key(organisation, "job", ["lookup"])
    assert authenticate(text) == key
    secret = text.split("_", 2)[2]
    stored = models.ApiKey.objects.values().get()
    assert len(secret) >= 40
    assert not any(secret in str(value) for value in stored.values())


def test_two_keys_differ(make_key):
    assert make_key() != make_key()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "opk",
        "opk_",
        "opk__",
        "opk_abc",
        "opk_abc_def",
        "sk_abc_def",
        "opk_é_x",
        "opk_a\0b_x",
        "opk_" + "a" * 5000,
    ],
)
def test_what_is_no_key_is_refused_with_a_sentence(db, text):
    with pytest.raises(KeyRefused, match=r"\."):
        authenticate(text)


def test_a_wrong_secret_is_refused(make_key):
    text = make_key()
    with pytest.raises(KeyRefused, match="not known"):
        authenticate(text[:-1] + ("a" if text[-1] != "a" else "b"))


def test_a_revoked_key_says_so_and_revoking_twice_keeps_the_first_time(organisation):
    key, text = create_api_key(organisation, "job", ["lookup"])
    revoked = revoke_api_key(key.prefix)
    assert revoke_api_key(key.prefix).revoked_at == revoked.revoked_at
    with pytest.raises(KeyRefused, match="revoked"):
        authenticate(text)


@pytest.mark.parametrize("scopes", [[], ["fly"], ["lookup", "fly"]])
def test_unknown_scopes_are_refused(organisation, scopes):
    with pytest.raises(RequestError, match="Scopes"):
        create_api_key(organisation, "job", scopes)
    assert not models.ApiKey.objects.exists()


def test_a_key_opens_until_its_end(organisation):
    end = timezone.now() + timedelta(days=2)
    key, text = create_api_key(organisation, "job", ["lookup"], expires_at=end)
    assert authenticate(text) == key
    models.ApiKey.objects.update(expires_at=end - timedelta(days=3))
    with pytest.raises(KeyRefused, match=r"^This API key expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC"):
        authenticate(text)
    with pytest.raises(KeyRefused, match="not known"):  # who has not the whole key is told nothing of it
        authenticate(text[:-3])
    with pytest.raises(RequestError, match="in the future"):
        create_api_key(organisation, "job", ["lookup"], expires_at=timezone.now())


@pytest.mark.parametrize(("address", "opens"), [
    ("192.0.2.7", True), ("192.0.2.255", True), ("192.0.3.1", False), ("::ffff:192.0.2.7", True),
    ("::ffff:192.0.3.7", False), ("2001:db8::9", True), ("2001:db9::9", False), ("10.0.0.1", True),
    ("10.0.0.2", False), ("", False), ("192.0.2.7:443", False), ("192.0.2.7, 192.0.2.7", False), ("x", False),
    ("192.0.2.07", False), ("64:ff9b::c000:207", False),
])  # fmt: skip
def test_a_key_opens_from_its_networks(organisation, django_assert_num_queries, address, opens):
    given = [" 192.0.2.0/24", "2001:db8::/32", "10.0.0.1", "192.0.2.0/24"]
    key, text = create_api_key(organisation, "job", ["lookup"], addresses=given)
    assert key.addresses == ["192.0.2.0/24", "2001:db8::/32", "10.0.0.1/32"]
    models.ApiKey.objects.update(last_used_at=timezone.now())
    with django_assert_num_queries(1):
        if opens:
            assert authenticate(text, address) == key
            return
        with pytest.raises(KeyRefused, match=rf"not for use from {address or 'there'}: ask where"):
            authenticate(text, address)


@pytest.mark.parametrize("network", [
    "", "192.0.2.7/24", "192.0.2.0/33", "192.0.2", "example.org", "2130706433", "0x7f.0.0.1", "*",
    "192.0.2.0/24\0", "é" * 900,
])  # fmt: skip
def test_what_is_no_network_is_refused(organisation, network):
    with pytest.raises(RequestError, match="is no network: write 192") as refused:
        create_api_key(organisation, "job", ["lookup"], addresses=["192.0.2.7", network])
    assert refused.value.where == "addresses" and not models.ApiKey.objects.exists()
    with pytest.raises(RequestError, match="at most 50"):
        create_api_key(organisation, "job", ["lookup"], addresses=["192.0.2.7"] * 51)


@pytest.mark.parametrize(("text", "end"), [
    ("", None), (" ", None), ("2027-01-31", "2027-01-31T00:00:00+00:00"),
    ("2027-01-31T18:00", "2027-01-31T18:00:00+00:00"),
    ("2027-01-31T18:00+02:00", "2027-01-31T16:00:00+00:00"),
    ("tomorrow", "wrong"), ("2027-02-30", "wrong"), ("9999-12-31T23:59-14:00", "wrong"), ("\0", "wrong"),
])  # fmt: skip
def test_an_end_is_a_day_or_a_time(text, end):
    if end == "wrong":
        with pytest.raises(RequestError, match="An end is a day or a time"):
            expiry_of(text)
    else:
        assert (found := expiry_of(text)) == (end and datetime.fromisoformat(end)), found


def test_last_use_is_written_once_a_minute(organisation, django_assert_num_queries):
    _, text = create_api_key(organisation, "job", ["lookup"])
    authenticate(text)
    first = models.ApiKey.objects.get().last_used_at
    assert first is not None
    with django_assert_num_queries(1):
        authenticate(text)
    models.ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    authenticate(text)
    assert models.ApiKey.objects.get().last_used_at >= first
