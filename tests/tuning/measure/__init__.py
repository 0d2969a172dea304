"""The laboratory against real children, sandboxes and C kernels."""
