"""Fused operators (requirement G2): which nodes of a graph may be one operator, which might be worth it, and
which are by their measured times. PURE. The rule, its cases and where we go beyond it: ``docs/g2.md``."""
