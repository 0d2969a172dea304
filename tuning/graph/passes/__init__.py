"""Passes that make plans: each takes a draft and gives another one. PURE."""
