"""Outgoing webhooks in the Standard Webhooks form, from an outbox."""
