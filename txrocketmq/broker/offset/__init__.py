"""Positions in queues: of the queues themselves and of consumer groups."""
