"""Alerts: rules fire them, people and webhooks are told, and people take them up until they are resolved."""
