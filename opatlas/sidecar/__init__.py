"""One process beside a machine's many jobs: it has a login, answers from the same caches that jobs have, and
asks the service for all of them. ``docs/protocol.md`` says what it speaks."""
