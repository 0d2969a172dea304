"""Which parts of a model a device and its libraries run as one operator, by rule (docs/plans.md). PURE."""
