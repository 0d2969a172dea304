"""Billing over REST, a module for each kind of resource."""
