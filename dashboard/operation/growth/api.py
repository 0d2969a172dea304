"""What takes room, over REST: for keys of who runs the service."""

from __future__ import annotations

from django.urls import path
from rest_framework.request import Request

from catalog.api.authentication import Needs
from catalog.api.endpoint import RestView, operation
from catalog.api.shapes import shape
from catalog.viewing import OPERATE
from dashboard.operation.growth.selectors import REFUSAL, Growth, growth_now


class GrowthView(RestView):
    needs = Needs("operate", everywhere=OPERATE, refusal=REFUSAL)

    @operation(shape(Growth))
    def get(self, request: Request) -> Growth:
        """What takes room, how fast it grows, and when its disk will be full."""
        return growth_now()


urlpatterns = [path("statistics/growth", GrowthView.as_view())]
