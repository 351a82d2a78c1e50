"""The lake: tables of files that a streaming query commits once per micro-batch."""
