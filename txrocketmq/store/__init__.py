"""The message store on disk, in the official layout."""
