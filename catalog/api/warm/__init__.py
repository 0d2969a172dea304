"""What a process remembers of lookups that it has answered: hits as they are written, and who may ask."""
