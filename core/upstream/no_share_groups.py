"""Members of share groups over an existing cluster: they speak to the cluster itself."""

from __future__ import annotations

from core.errors import ErrorCode
from core.vocabulary.share_groups import ShareGroupView, ShareHeartbeat, ShareReply


class NoShareGroups:
    """Implements `core.vocabulary.share_groups.ShareGroups` by a refusal."""

    async def heartbeat(self, group_id: str, request: ShareHeartbeat) -> ShareReply:
        """Refuse with UNSUPPORTED_VERSION."""
        message = "Members of share groups are not served over an existing cluster."
        return ShareReply(ErrorCode.UNSUPPORTED_VERSION, message=message)

    def describe(self, group_id: str) -> ShareGroupView | None:
        """Return None: the cluster describes them itself."""
        return None
