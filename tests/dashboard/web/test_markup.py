"""Our HTML of values is Django's, whatever the value."""

from __future__ import annotations

import pytest
from django.urls import reverse, set_script_prefix
from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from hypothesis import given
from hypothesis import strategies as st

from dashboard.templatetags.people import options
from dashboard.web.addresses import address
from dashboard.web.markup import escaped, filled


class Drawn:
    def __html__(self) -> str:
        return "<i>drawn</i>"


VALUES = st.one_of(st.text(), st.integers(), st.none(), st.builds(Drawn), st.text().map(mark_safe))


@given(VALUES)
def test_a_value_is_escaped_as_django_does(value: object) -> None:
    assert escaped(value) == conditional_escape(value)
    assert hasattr(escaped(value), "__html__") or isinstance(value, Drawn)


@given(VALUES, VALUES)
def test_values_in_markup_are_escaped_as_django_does(one: object, other: object) -> None:
    text = '<b title="{}">{}</b>'
    assert filled(text, one, other) == format_html(text, one, other)
    assert isinstance(filled(text, one, other), SafeString)


def test_hostile_text_stays_text() -> None:
    said = options([("", "All"), (7, "<script>'\"&")], 7)
    assert said == (
        '<option value="">All</option><option value="7" selected>&lt;script&gt;&#x27;&quot;&amp;</option>'
    )


@pytest.fixture
def beneath() -> object:
    yield set_script_prefix("/beneath/")
    set_script_prefix("/")


def test_an_address_is_the_one_of_the_table(beneath: object) -> None:
    assert address("job", 3) == reverse("job", args=[3]) == "/beneath/jobs/3/"
    set_script_prefix("/")
    assert address("job", 3) == reverse("job", args=[3]) == "/jobs/3/"
