"""Who may see these pages, what a list is narrowed to, and its table."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypeVar

from django.core.exceptions import PermissionDenied
from django.db.models import Model, QuerySet
from django.http import Http404

from catalog.models import Organisation
from catalog.viewing import BILL
from dashboard.web.asked import one_of, takes, text_of
from dashboard.web.own_rows import own_organisation
from dashboard.web.paging import exportable
from dashboard.web.ranges import range_of
from dashboard.web.requests import ViewerRequest, number_in
from dashboard.web.tables import Column, Table, page
from dashboard.webhooks import selectors
from dashboard.webhooks.models import Delivery, DeliveryState, Endpoint, EventType
from dashboard.webhooks.selectors import DeliveryFilters

M = TypeVar("M", bound=Model)
_REFUSED = "Webhooks are for the billing and admin roles of the organisation."


def check_may(request: ViewerRequest) -> Organisation:
    """The organisation that is looked at; 403 for who may not change its webhooks."""
    organisation = own_organisation(request)
    if organisation is None or not request.viewer.may(BILL, organisation.pk):
        raise PermissionDenied(_REFUSED)
    return organisation


def endpoint_or_404(request: ViewerRequest, pk: int) -> Endpoint:
    """Another organisation's does not exist."""
    rows = Endpoint.objects.filter(request.viewer.owned()).select_related("organisation")
    row = _one(request, rows, pk, "endpoint")
    _check_owner(request, row)
    return row


def delivery_or_404(request: ViewerRequest, pk: int) -> Delivery:
    row = _one(request, selectors.deliveries(request.viewer, DeliveryFilters()), pk, "delivery")
    _check_owner(request, row.endpoint)
    return row


def _one(request: ViewerRequest, rows: QuerySet[M], pk: int, what: str) -> M:
    check_may(request)
    row = rows.filter(pk=pk).first()
    if row is None:
        raise Http404(f"There is no {what} {pk}.")
    return row


def _check_owner(request: ViewerRequest, row: Endpoint) -> None:
    if not request.viewer.may(BILL, row.organisation_id):
        raise PermissionDenied(_REFUSED)


def shown(request: ViewerRequest, endpoint: int | None = None) -> DeliveryFilters:
    """What the URL narrows a list to, of one endpoint's page only its own; what is not understood is said,
    and left out."""
    given = request.GET
    takes(request, "endpoint", "state", "event_type", "q")
    state = one_of(request, "state", DeliveryState.values)
    event_type = one_of(request, "event_type", EventType.values)
    return DeliveryFilters(
        endpoint=endpoint or number_in(given.get("endpoint", "")),
        states=(state,) if state else (),
        event_types=(event_type,) if event_type else (),
        during=range_of(request),
        text=text_of(request, most=100),
    )


def _next_try(row: Delivery) -> datetime | None:
    return row.next_try_at if row.state == DeliveryState.PENDING else None


_COLUMNS = (
    Column("event_type", "Event", value="message.event_type", link=page("webhook-delivery"), room_px=138),
    Column("state", "State", "badge"),
    Column("tries", "Tries", "count"),
    Column("last_answer", "Last answer", value=lambda row: row.last_error or str(row.last_status or "")),
    Column("happened_at", "Happened", "when", "message.created_at"),
    Column("next_try_at", "Next try", "when", _next_try),
    Column("endpoint", "Endpoint", value="endpoint.url", room_px=238),
    Column("message_id", "Message", "code", "message.public_id", room_px=298),
)


def deliveries_table(
    request: ViewerRequest, narrowed: DeliveryFilters, rows: Any, *, of_one: bool = False
) -> Table:
    """``rows`` are those of the page; an export has all of them, to the bound."""
    columns = [column for column in _COLUMNS if not (of_one and column.key == "endpoint")]
    every = None
    if "export" in request.GET:
        every = exportable(selectors.deliveries(request.viewer, narrowed))
    empty = "Nothing was sent in this time, or nothing passes the filters."
    return Table("deliveries", "Deliveries", columns, rows, empty, every)
