"""Messages that are delivered later: the fixed delay levels."""
