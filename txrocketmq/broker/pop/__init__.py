"""POP consumption: messages handed out for a time, acknowledged one by one, and given again when nobody does."""
