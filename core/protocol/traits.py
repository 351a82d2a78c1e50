"""What a version means beyond its layout: the one table of such facts, so that no handler asks for a version."""

from __future__ import annotations

# The record format ("magic") of the first versions; all later ones carry 2.
_PRODUCE_MAGIC = (0, 0, 1)
_FETCH_MAGIC = (0, 0, 1, 1)
_NEWEST_MAGIC = 2


def produce_magic(version: int) -> int:
    """The newest record format that a Produce request of this version may carry."""
    return _PRODUCE_MAGIC[version] if version < len(_PRODUCE_MAGIC) else _NEWEST_MAGIC


def fetch_magic(version: int) -> int:
    """The newest record format that the client of a Fetch of this version understands."""
    return _FETCH_MAGIC[version] if version < len(_FETCH_MAGIC) else _NEWEST_MAGIC


def fetch_sends_oversized_batch(version: int) -> bool:
    """Whether a first batch above the limit is sent whole (KIP-74); earlier clients get it cut."""
    return version >= 3


def metadata_empty_means_all(version: int) -> bool:
    """Whether an empty list of topics asks for all of them; later versions say null for that."""
    return version == 0


def names_topics_by_id(key: int, version: int) -> bool:
    """Whether Produce (0) and Fetch (1) of this version name topics by UUID (KIP-516)."""
    return version >= 13 and key in (0, 1)


def list_offsets_old_style(version: int) -> bool:
    """Whether ListOffsets answers a list of segment offsets, newest first."""
    return version == 0


def api_versions_names_software(version: int) -> bool:
    """Whether ApiVersions carries the name and version of the client's software (KIP-511)."""
    return version >= 3
