"""Official configuration keys, files and defaults."""
