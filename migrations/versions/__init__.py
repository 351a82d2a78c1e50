"""One file a revision; the first line of each says what changed."""
