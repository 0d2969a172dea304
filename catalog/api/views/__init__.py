"""The query API, a module for each resource."""
