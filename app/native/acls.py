"""Access rules over HTTP: Kafka's ACLs with the words of Kafka's tools.

curl …/acls?principal=User:bob
curl --json '{"acls": [{"resource_type": "TOPIC", "resource_name": "orders", "principal": "User:bob",
    "operation": "READ"}]}' …/acls
curl -X DELETE '…/acls?principal=User:bob&dry_run=true'
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel, Field, StrictStr

from app.acl_json import FILTERS, acl_filter, rule, shown
from app.errors import Problem, field_error
from app.native.dependencies import GuardedDep
from app.native.schemas import Shape
from core.errors import BrokerError
from core.security.acl import Acl, AclFilter, check_acl

Resource = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"]
Pattern = Literal["LITERAL", "PREFIXED"]
PatternToFind = Literal["MATCH", "LITERAL", "PREFIXED"]
Operation = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS",
    "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
]  # fmt: skip
Permission = Literal["DENY", "ALLOW"]
# Rules that one request may create.
_MAX_CREATED = 1_000


class AclToCreate(Shape):
    """A new access rule."""

    resource_type: Resource
    resource_name: StrictStr | None = Field(
        None, description="The name or the beginning of names; `*` for all. Not needed for CLUSTER."
    )
    pattern_type: Pattern = Field("LITERAL", description="PREFIXED: the name is the beginning of names.")
    principal: StrictStr = Field(description="`User:name`, or `User:*` for all.", examples=["User:bob"])
    host: StrictStr = Field("*", description="The IP address of the client, or `*`.")
    operation: Operation
    permission_type: Permission = Field("ALLOW", description="A rule that denies wins over all others.")


class AclsToCreate(Shape):
    """New access rules."""

    acls: list[AclToCreate] = Field(min_length=1, max_length=_MAX_CREATED)


class AclDetail(BaseModel):
    """An access rule."""

    resource_type: Resource
    resource_name: str
    pattern_type: Pattern
    principal: str
    host: str
    operation: Operation
    permission_type: Permission


class AclList(BaseModel):
    """Access rules, sorted."""

    items: list[AclDetail]


class AclsDeleted(BaseModel):
    """The access rules that are deleted, or would be."""

    dry_run: bool
    items: list[AclDetail]


WantedResource = Annotated[Resource | None, Query(description="Only rules for this type.")]
WantedName = Annotated[str | None, Query(description="Only rules with this name.")]
WantedPattern = Annotated[
    PatternToFind | None,
    Query(description="Only such patterns; MATCH: every pattern that covers `resource_name`."),
]
WantedPrincipal = Annotated[
    str | None, Query(description="Only rules for this principal.", examples=["User:bob"])
]
WantedHost = Annotated[str | None, Query(description="Only rules for this host.")]
WantedOperation = Annotated[Operation | None, Query(description="Only rules for this operation.")]
WantedPermission = Annotated[Permission | None, Query(description="Only rules of this kind.")]


async def list_acls(
    broker: GuardedDep,
    resource_type: WantedResource = None,
    resource_name: WantedName = None,
    pattern_type: WantedPattern = None,
    principal: WantedPrincipal = None,
    host: WantedHost = None,
    operation: WantedOperation = None,
    permission_type: WantedPermission = None,
) -> AclList:
    """The access rules that fit all parameters given; without parameters all."""
    wanted = _filter(resource_type, resource_name, pattern_type, principal, host, operation, permission_type)
    return AclList(items=_details(broker.acls.describe(wanted)))


async def create_acls(broker: GuardedDep, wanted: AclsToCreate) -> AclList:
    """Create access rules, all checked before; what exists already stays. They hold for the next request."""
    new = [rule(one.model_dump()) for one in wanted.acls]
    for index, acl in enumerate(new):
        try:
            check_acl(acl)
        except BrokerError as error:
            detail = f"Rule {index}: {error.message}"
            raise Problem(
                "invalid-request", detail, errors=[field_error(error.message, pointer=f"#/acls/{index}")]
            ) from None
    for refused in await broker.acls.create(new):
        if refused is not None:
            raise refused
    return AclList(items=_details(sorted(set(new))))


async def delete_acls(
    broker: GuardedDep,
    resource_type: WantedResource = None,
    resource_name: WantedName = None,
    pattern_type: WantedPattern = None,
    principal: WantedPrincipal = None,
    host: WantedHost = None,
    operation: WantedOperation = None,
    permission_type: WantedPermission = None,
    dry_run: Annotated[bool, Query(description="Say what would be deleted, and delete nothing.")] = False,
) -> AclsDeleted:
    """Delete the access rules that fit all parameters given, of which there must be one."""
    wanted = _filter(resource_type, resource_name, pattern_type, principal, host, operation, permission_type)
    if wanted == AclFilter():
        raise Problem(
            "invalid-request",
            "Without a parameter all access rules would be deleted; name a resource_type or a principal.",
        )
    found = broker.acls.describe(wanted) if dry_run else (await broker.acls.delete([wanted]))[0]
    return AclsDeleted(dry_run=dry_run, items=_details(found))


def _filter(*values: str | None) -> AclFilter:
    return acl_filter(dict(zip(FILTERS, values, strict=True)))


def _details(acls: list[Acl]) -> list[AclDetail]:
    return [AclDetail.model_validate(shown(acl)) for acl in acls]
