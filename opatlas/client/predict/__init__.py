"""Which operators a job will ask for next."""
