"""Notifications: subscriptions, and their ways to a page, a mailbox, a webhook or a phone."""
