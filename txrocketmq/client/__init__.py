"""The client: producers, consumers and what they share, in Twisted's own manner."""
