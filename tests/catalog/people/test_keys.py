from datetime import timedelta

import pytest
from django.utils import timezone

from catalog import models
from catalog.errors import RequestError
from catalog.people.keys import KeyRefused, authenticate, create_api_key, revoke_api_key


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
