"""Topics as a Spark data source: options, offsets, ranges, and the readers for batch and stream."""
