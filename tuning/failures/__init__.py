"""Failed trials by cause: grouped as they are kept, read by pages and REST, tried again."""
