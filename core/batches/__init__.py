"""Between single records and record batches: the partition and the batch of a record, and opening batches."""
