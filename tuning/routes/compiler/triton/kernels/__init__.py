"""Device code, in Triton's language. Imported where Triton is, by those who compile it."""
