"""Assembly of roles into Twisted services; the only package that knows the reactor."""
