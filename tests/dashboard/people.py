"""Members of organisations, logged in."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from catalog.models import Membership, Organisation


def member_client(organisation: Organisation, role: str, name: str = "", password: str = "x") -> Client:
    """A browser without JavaScript in which a new member of the organisation is logged in."""
    user = User.objects.create_user(name or f"{role} of {organisation}", password=password)
    Membership.objects.create(user=user, organisation=organisation, role=role)
    client = Client()
    client.force_login(user)
    return client
