"""For the service's operators: readiness, metrics, logs, security headers, rate limits."""
