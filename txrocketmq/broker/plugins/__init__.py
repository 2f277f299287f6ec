"""Code of others in a broker: which is there, and when it is called."""
