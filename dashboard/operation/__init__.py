"""What those who run the service need: readiness, metrics, logs, security headers, rate limits."""
