"""Messages that a consumer could not use: retries and dead letters."""
