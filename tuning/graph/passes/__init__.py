"""Passes that make plans: each maps a draft to another one. PURE."""
