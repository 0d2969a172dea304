"""People with API keys, for tests that go the whole way by REST."""

from __future__ import annotations

from typing import Any

from django.test import Client


class Person:
    """Somebody with an API key."""

    def __init__(self, name: str, *scopes: str, decides: bool = False) -> None:
        from django.contrib.auth.models import Permission, User

        from catalog.people.keys import create_api_key
        from catalog.registry import default_organisation

        user = User.objects.create_user(name)
        if decides:
            user.user_permissions.add(Permission.objects.get(codename="decide"))
        key = create_api_key(default_organisation(), name, scopes, user=user)[1]
        self.client, self.headers = Client(), {"Authorization": f"Bearer {key}"}

    def get(self, path: str) -> Any:
        return self.client.get(f"/api/v1/kernels/{path}", headers=self.headers).json()

    def post(self, path: str, document: Any) -> Any:
        return self.client.post(
            f"/api/v1/kernels/{path}", document, content_type="application/json", headers=self.headers
        )
