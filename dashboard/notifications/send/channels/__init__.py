"""Ways out of the service. Each takes what is prepared and says what came of it; failure is a value."""
