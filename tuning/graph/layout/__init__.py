"""Chooses the data layout of each operator of a model by a profile of real runs (docs/plans.md). PURE.

A model (``model.py``), how often its parts run (``counts.py``) and each operator's time by layout become a
problem (``problem.py``), which is solved exactly (``solving.py``) and costed again (``costing.py``).
"""
