"""Where an operator runs: the target (hardware alone) and the setting (what else its time holds for)."""
