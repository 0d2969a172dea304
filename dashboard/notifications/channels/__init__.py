"""Ways to people, a folder each: how one is chosen, what leaves by it, its pages; ``registry`` lists them."""
