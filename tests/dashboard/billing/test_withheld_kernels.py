"""A hand-written kernel that is withheld until it is paid shows its source nowhere."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from django.contrib.auth.models import User

from catalog.people.keys import create_api_key
from tests.catalog import making
from tests.conftest import Api
from tests.dashboard.kernels import SOURCE, approve, evaluated, person, submitted
from tests.dashboard.people import member_client
from tuning.kernels.binding import submitted_kernel
from tuning.kernels.models import KernelVersion

SECRETS = ("y[i] /= sum", "vaddps", "opatlas_run:")


@pytest.fixture
def version(put: Any, price: Any, target: Any, setting: Any) -> KernelVersion:
    """Approved, and the best of a Relu at a price."""
    found = submitted(person("ada"))
    candidate = submitted_kernel(found).candidate()
    best = put(64, candidate.route, 2.0, method="manual").implementation
    type(best).objects.filter(pk=best.pk).update(kernel_version=found.pk)
    where: Any = SimpleNamespace(target=target, setting=setting)
    approve(evaluated(found, [best.operator], where), user=person("grace", decides=True), reason="Read.")
    price(0.02, mode="withhold", method="manual")
    return KernelVersion.objects.get(pk=found.pk)


@pytest.fixture
def addresses(version: KernelVersion) -> list[str]:
    return [f"kernels/versions/{version.pk}", f"kernels/versions/{version.pk}/evidence"]


def test_rest_says_the_price_in_place_of_the_source(
    version: KernelVersion, addresses: list[str], tenant: Any, credit: Any, ask: Any
) -> None:
    assert SECRETS[0] in SOURCE
    member_client(tenant, "operator", "bob")
    user = User.objects.get(username="bob")
    api = Api(create_api_key(tenant, "own", ["kernels", "lookup"], user=user)[1])
    for path in addresses:
        refused = api.get(path)
        assert refused.status_code == 402 and refused.json()["price"]["amount_micros"] == 20_000, path
        assert not any(secret in refused.content.decode() for secret in SECRETS)
    credit(0.02, to=tenant)
    ask(64, organisation=tenant)
    for path in addresses:
        assert api.get(path).status_code == 200, path


def test_pages_say_it_too(version: KernelVersion, tenant: Any, credit: Any, ask: Any) -> None:
    path = f"/kernels/{version.kernel_id}/v{version.number}/"
    mine = member_client(tenant, "viewer")
    page = mine.get(path)
    assert page.status_code == 402 and b"Withheld." in page.content
    assert not any(secret in page.content.decode() for secret in SECRETS)
    live = mine.get(path, headers={"HX-Request": "true"})
    assert not any(secret in live.content.decode() for secret in SECRETS)
    credit(0.02, to=tenant)
    ask(64, organisation=tenant)
    opened = mine.get(path)
    assert opened.status_code == 200 and b"sum" in opened.content


def test_whose_it_is_sees_it_all_the_same(
    version: KernelVersion, addresses: list[str], organisation: Any
) -> None:
    path = f"/kernels/{version.kernel_id}/v{version.number}/"
    assert member_client(organisation, "operator").get(path).status_code == 200
    api = Api(create_api_key(organisation, "own", ["kernels"], user=version.submitted_by)[1])
    assert {api.get(address).status_code for address in addresses} == {200}


def test_an_implementation_that_is_open_opens_the_source_of_all(
    version: KernelVersion, put: Any, tenant: Any
) -> None:
    """What is paid for one operator is the same source for every other."""
    candidate = submitted_kernel(version).candidate()
    other = put(32, candidate.route, 2.0, method="library").implementation
    type(other).objects.filter(pk=other.pk).update(kernel_version=version.pk)
    path = f"/kernels/{version.kernel_id}/v{version.number}/"
    assert member_client(tenant, "viewer").get(path).status_code == 200
    assert making.relu(32).key != making.relu(64).key
