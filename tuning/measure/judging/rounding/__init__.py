"""What each element of a result may differ by: a running error analysis over the operator's graph.

The float64 reference is computed node by node, and with every value goes a bound on the error that honest
arithmetic in the value's own type can have made of it, element by element: products and sums from the terms
of that very element (``sums``), functions of one element from their slope at that very place (``pointwise``),
softmaxes and normalisations from their definition in an arithmetic that carries errors along (``rows``), and
what none of these knows from runs on inputs moved a little (``probing``). Each node adds its own rounding. No
element's bound depends on how large elements are that it is not computed from.
"""
