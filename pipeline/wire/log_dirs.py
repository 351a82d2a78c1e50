"""Where a broker keeps a partition's files, for readers on its host."""

from __future__ import annotations

from core.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from pipeline.wire.cluster import Cluster
from pipeline.wire.errors import WireError, refuse

DESCRIBE_LOG_DIRS = 35


def log_directory(cluster: Cluster, topic: str, partition: int) -> str:
    """The directory in which the leader keeps the partition's own directory.

    Raises WireError if the leader does not name it.
    """
    request = DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=topic, partitions=[partition])])

    def ask() -> str:
        answer = cluster.leader(topic, partition).request(DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
        refuse(answer.error_code, "DescribeLogDirs")
        for directory in answer.results:
            refuse(directory.error_code, f"DescribeLogDirs: {directory.log_dir}")
            for one in directory.topics:
                if one.name == topic and any(p.partition_index == partition for p in one.partitions):
                    return directory.log_dir
        raise WireError(f"the broker does not say where it keeps topic {topic}, partition {partition}")

    return cluster.patiently(ask)
