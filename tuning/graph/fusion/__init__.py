"""Which parts of a model a device and its libraries can run as one operator, by rule (docs/plans.md). PURE."""
