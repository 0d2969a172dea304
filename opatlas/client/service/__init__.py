"""A client's connection to the service, or to a sidecar."""
