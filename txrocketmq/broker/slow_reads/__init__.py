"""Consumers that read what the machine's memory does not hold, or that fall far behind, must not slow down all others."""
