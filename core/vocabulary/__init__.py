"""What callers of the broker and its implementations share: frozen types, one noun in a file."""
