"""What README.md and docs/ tell people to type, typed."""
