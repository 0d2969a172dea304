"""How a job talks to the service. The cache and the prefetching of related operators will join it here."""

from opatlas.client.fetching import Refused, Trust, fetch_and_load
from opatlas.client.rest import Answer, Client, ServiceError

__all__ = ["Answer", "Client", "Refused", "ServiceError", "Trust", "fetch_and_load"]
