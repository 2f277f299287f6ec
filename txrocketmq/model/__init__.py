"""Values of the protocol: no I/O, no Twisted."""
