"""Callers of 7fa76a5: what they were promised still holds."""
