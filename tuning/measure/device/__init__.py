"""A device with memory of its own, beside what runs on it: its files, its memory, its clocks."""
