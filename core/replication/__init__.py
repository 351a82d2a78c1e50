"""Copies of partitions on several brokers: leaders, followers, committed offsets."""
