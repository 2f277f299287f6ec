"""SQL92 filters: the language, the filters of consumers, and their use on records."""
