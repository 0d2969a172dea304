"""Hand-written kernels: submitted, evaluated in the sandbox, approved by somebody else, contested."""
