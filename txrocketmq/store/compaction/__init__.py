"""Topics of which the latest message of each key stays: their log, its queue, and how both are made smaller."""
