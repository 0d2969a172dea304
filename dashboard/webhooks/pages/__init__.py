"""Pages below /webhooks/: for the billing and admin roles of an organisation."""
