"""Sending: checks, stored properties, answers."""
