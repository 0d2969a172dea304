"""What a process remembers, and what a machine keeps."""
