"""The ready jobs: their settings, what they would read, and what they do."""
