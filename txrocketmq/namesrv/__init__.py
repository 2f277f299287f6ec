"""The name server role."""
