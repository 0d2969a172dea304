"""The changes of docs/changing.md, made in a copy of the tree."""
