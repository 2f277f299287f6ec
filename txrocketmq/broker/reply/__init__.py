"""Request-reply calls: an answer goes back to the client that asked."""
