"""Which entries a person may see on pages."""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, User
from django.db.models import Q

from catalog.models import SHARED


def visible(user: User | AnonymousUser) -> Q:
    """Shared entries for everybody; private ones only for administrators."""
    return Q() if user.is_superuser else Q(scope=SHARED)
