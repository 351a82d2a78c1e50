"""What a log holds: records, batches, compression, partitioning."""
