"""Proof against the official Java software: its processes, the puppet that drives them, and the harness around both."""
