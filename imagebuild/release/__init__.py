"""Pointing at it: promotions, their ledger, and what can be verified about them."""
