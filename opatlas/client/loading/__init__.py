"""From a hit to a function: fetched, verified, loaded, and watched for failures."""
