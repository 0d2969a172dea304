"""What code in the sandbox tries to reach or to use up, while it is built and while it runs."""
