"""Pages of notifications: inbox, subscriptions, devices, and the way out of mails."""
