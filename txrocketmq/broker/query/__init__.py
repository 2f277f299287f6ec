"""Finding messages by key, unique key and id."""
