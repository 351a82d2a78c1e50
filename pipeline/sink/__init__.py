"""Topics as a Spark sink: records of Arrow batches to partitions, and how surely they arrive."""
