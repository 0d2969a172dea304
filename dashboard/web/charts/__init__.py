"""Charts, a module for each kind of page that shows them; how all are drawn: ``drawing``."""
