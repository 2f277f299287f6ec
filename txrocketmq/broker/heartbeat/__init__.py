"""Heartbeats of clients, and what is known through them."""
