"""Measuring on a bare machine: no Django, database or broker. PURE. What it finds travels as JSON lines."""
