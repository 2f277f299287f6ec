"""Producers: from a message to its place in a queue."""
