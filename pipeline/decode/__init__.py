"""Record batches, as a broker or a segment file gives them, into Arrow record batches."""
