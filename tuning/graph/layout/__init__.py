"""In which data layout each operator of a model runs, chosen by a profile of real runs (docs/plans.md). PURE.

A model (``model.py``), how often its parts run (``counts.py``) and what each operator takes by layout become
a problem (``problem.py``), which is solved exactly (``solving.py``) and added up again (``costing.py``).
"""
