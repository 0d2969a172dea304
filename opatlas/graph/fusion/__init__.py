"""Which nodes of a model may run as one operator: candidates, and which of them save most. PURE."""
