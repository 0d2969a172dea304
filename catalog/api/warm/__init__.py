"""What a process remembers of lookups that it has answered: written hits, and valid keys."""
