"""Reads of the catalogue, by what they are for."""
