"""What is wrong, as rows that people take up: fired by rules, told to people and webhooks, resolved."""
