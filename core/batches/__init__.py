"""Between single records and record batches: which partition and batch a record goes to, and opening batches."""
