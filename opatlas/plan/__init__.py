"""How a whole model runs: a plan as a value, its check against the model, and what executes it. PURE."""
