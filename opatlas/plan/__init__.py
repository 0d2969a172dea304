"""Plans: how a whole model runs, checked against the model, and the executor that runs them. PURE."""
