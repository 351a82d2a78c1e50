"""The ready jobs: what they may be told, what they would read, and what they do."""
