"""A Kafka client on asyncio: connections, metadata, coordinators, an idempotent producer and a shared fetcher."""
