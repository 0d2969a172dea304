"""Channels to people, a folder each: choosing, sending, pages; ``registry`` lists them."""
