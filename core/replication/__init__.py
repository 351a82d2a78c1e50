"""Copies of partitions on several brokers: who leads, who follows, what is committed."""
