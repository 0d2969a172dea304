"""Notifications' part of the REST API."""
