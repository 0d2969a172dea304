"""Webhooks over REST: endpoints, deliveries, replay. Needs the scope ``billing`` (``admin`` may do all)."""
