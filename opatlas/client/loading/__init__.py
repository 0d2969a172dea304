"""From a hit to a function: fetched, verified, loaded, watched."""
