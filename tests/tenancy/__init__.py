"""What one tenant sees of another: nothing, on every address."""
