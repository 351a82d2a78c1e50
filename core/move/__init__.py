"""The way from one cluster to another: topics with their batches as they are, offsets translated exactly."""
