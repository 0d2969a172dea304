"""Reads that need tuning's tables beside the catalogue's."""
