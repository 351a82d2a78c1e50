"""Decide what a caller may do by access rules, as Kafka's StandardAuthorizer does.

The order: a super user may do everything; a rule that denies wins over all others; a rule that allows; if no rule of
any principal covers the resource, the setting `allow.everyone.if.no.acl.found`; else no. A rule that allows READ,
WRITE, DELETE or ALTER allows DESCRIBE too, and ALTER_CONFIGS allows DESCRIBE_CONFIGS. A rule that denies implies
nothing.

Rules are found by the type and name of a resource, and by principal, so that a decision looks at a handful of them
however many there are. `Rights` keeps the decisions of one caller until the number `generation` changes, which every
change of the rules, of the super users and of the switch does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Collection, Container, Iterable, Iterator
from typing import TypeVar

from core.errors import BrokerError, ErrorCode
from core.security.acl import (
    ANY_USER,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    implying,
)
from core.security.audit import Audit
from core.security.scopes import Scope

T = TypeVar("T")

_Key = tuple[int, int, str]
# Decisions that are kept for one caller; above it all are dropped.
_MAX_DECISIONS = 1_000
# Any name that no rule is about: see `Authorizer.allows_any`.
_NO_NAME = "\0"

REFUSALS = {
    ResourceType.TOPIC: (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Topic authorization failed."),
    ResourceType.GROUP: (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Group authorization failed."),
    ResourceType.CLUSTER: (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "Transactional Id authorization failed.",
    ),
}
"""The error of a denied operation by the type of its resource, in Kafka's words."""


def is_denial(error: BrokerError) -> bool:
    """Return whether an error is that of a right that is missing."""
    return "resource_type" in error.details


class Authorizer:
    """The rules, the super users and the switch. Touched on the event loop only.

    While it is off every caller may do everything. `super_users` are principals such as `User:admin`.
    """

    def __init__(
        self,
        *,
        enabled: bool = False,
        super_users: Iterable[str] = (),
        allow_if_no_acl: bool = False,
        audit: Audit | None = None,
    ) -> None:
        self.generation = 0
        self.audit = audit
        if audit is not None:
            audit.enabled = enabled
        self.enabled = enabled
        self.super_users = frozenset(super_users)
        self._allow_if_no_acl = allow_if_no_acl
        self._acls: set[Acl] = set()
        self._by_pattern: dict[_Key, dict[str, set[Acl]]] = {}
        # By type: how many patterns there are of each length of a prefix.
        self._prefix_lengths: dict[int, Counter[int]] = {}
        self._by_principal: dict[tuple[str, int], set[Acl]] = {}

    # --- the rules -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._acls)

    def __contains__(self, acl: object) -> bool:
        return acl in self._acls

    def matching(self, wanted: AclFilter) -> list[Acl]:
        """Return the rules that fit a filter, sorted."""
        return sorted(acl for acl in self._acls if wanted.fits(acl))

    def add(self, acls: Iterable[Acl]) -> None:
        """Add rules; those that are there already change nothing."""
        for acl in acls:
            if acl not in self._acls:
                self._acls.add(acl)
                self._index(acl)
        self.generation += 1

    def remove(self, acls: Iterable[Acl]) -> None:
        """Remove rules; those that are not there change nothing."""
        for acl in acls:
            if acl in self._acls:
                self._acls.remove(acl)
                self._forget(acl)
        self.generation += 1

    def replace(self, acls: Collection[Acl]) -> None:
        """Replace all rules."""
        if self._acls == set(acls):
            return
        self._acls.clear()
        self._by_pattern.clear()
        self._prefix_lengths.clear()
        self._by_principal.clear()
        self.add(acls)

    def switch(self, enabled: bool) -> None:
        """Switch the authorizer on or off."""
        if enabled is not self.enabled:
            self.enabled = enabled
            self.generation += 1
            if self.audit is not None:
                self.audit.enabled = enabled

    def set_super_users(self, super_users: Iterable[str]) -> None:
        """Replace the super users."""
        self.super_users = frozenset(super_users)
        self.generation += 1

    def _index(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.pattern_type, acl.resource_name)
        rules = self._by_pattern.get(key)
        if rules is None:
            rules = self._by_pattern[key] = {}
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, Counter())
                lengths[len(acl.resource_name)] += 1
        rules.setdefault(acl.principal, set()).add(acl)
        self._by_principal.setdefault((acl.principal, acl.resource_type), set()).add(acl)

    def _forget(self, acl: Acl) -> None:
        key = (acl.resource_type, acl.pattern_type, acl.resource_name)
        rules = self._by_pattern[key]
        rules[acl.principal].remove(acl)
        if not rules[acl.principal]:
            del rules[acl.principal]
        if not rules:
            del self._by_pattern[key]
            if acl.pattern_type is PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]
        held = self._by_principal[acl.principal, acl.resource_type]
        held.remove(acl)
        if not held:
            del self._by_principal[acl.principal, acl.resource_type]

    # --- decisions -------------------------------------------------------------------------------------------

    def unlimited(self, principal: str) -> bool:
        """Return whether a principal may do everything, whatever the rules say."""
        return not self.enabled or principal in self.super_users

    def allows(self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a principal may do an operation on one resource from an address."""
        if self.unlimited(principal):
            return True
        allowing = implying(operation)
        allowed = covered = False
        for rules in self._covering(kind, name):
            covered = True
            for acl in _of(rules, principal, host):
                if acl.permission is Permission.DENY:
                    if acl.operation in (operation, Operation.ALL):
                        return False
                elif acl.operation in allowing:
                    allowed = True
        return allowed or (not covered and self._allow_if_no_acl)

    def denying(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> Acl | None:
        """Return a rule that denies an operation; None if none does."""
        for rules in self._covering(kind, name):
            for acl in _of(rules, principal, host):
                if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL):
                    return acl
        return None

    def allows_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a principal may do an operation on at least one resource of a type (KIP-679).

        Only rules for the operation itself and for ALL count. A resource that a denial covers does not, as far as the
        names and prefixes of the rules show it.
        """
        if self.allows(principal, host, operation, kind, _NO_NAME):
            return True
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowing: list[Acl] = []
        for acl in self._of_principal(principal, host, kind):
            if acl.operation not in (operation, Operation.ALL):
                continue
            if acl.permission is Permission.ALLOW:
                allowing.append(acl)
            elif acl.pattern_type is PatternType.PREFIXED:
                denied_prefixes.add(acl.resource_name)
            else:
                denied_names.add(acl.resource_name)
        if WILDCARD in denied_names:
            return False
        return any(
            not (acl.pattern_type is PatternType.LITERAL and acl.resource_name in denied_names)
            and not any(acl.resource_name.startswith(prefix) for prefix in denied_prefixes)
            for acl in allowing
        )

    def _covering(self, kind: ResourceType, name: str) -> Iterator[dict[str, set[Acl]]]:
        """Yield the rules, by principal, of each pattern that covers a resource."""
        find = self._by_pattern.get
        for literal in {name, WILDCARD}:
            if rules := find((kind, PatternType.LITERAL, literal)):
                yield rules
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name) and (rules := find((kind, PatternType.PREFIXED, name[:length]))):
                yield rules

    def _of_principal(self, principal: str, host: str, kind: ResourceType) -> Iterator[Acl]:
        for who in {principal, ANY_USER}:
            for acl in self._by_principal.get((who, kind), ()):
                if acl.host in (host, WILDCARD):
                    yield acl


def _of(rules: dict[str, set[Acl]], principal: str, host: str) -> Iterator[Acl]:
    for who in {principal, ANY_USER}:
        for acl in rules.get(who, ()):
            if acl.host in (host, WILDCARD):
                yield acl


def acl_text(acl: Acl) -> str:
    """Return a rule as the audit log shows it."""
    kind, name, pattern, principal, host, operation, permission = acl
    return f"{permission.name} {principal} {host} {operation.name} {kind.name}:{pattern.name}:{name}"


class Rights:
    """What one principal may do from one address, with the decisions kept.

    With the `scope` of a token it may do no more than that, though it be a super user.
    """

    __slots__ = ("_authorizer", "_generation", "_host", "_known", "_principal", "_scope", "_unlimited")

    def __init__(self, authorizer: Authorizer, principal: str, host: str, scope: Scope | None = None) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._scope = scope
        self._generation = -1
        self._unlimited = False
        self._known: dict[tuple[int, int, str], bool] = {}

    @property
    def generation(self) -> int:
        """The number of the rules in force: what was allowed under another one must be asked again."""
        return self._authorizer.generation

    @property
    def enforced(self) -> bool:
        """Whether there is an authorizer at all."""
        return self._authorizer.enabled

    @property
    def unlimited(self) -> bool:
        """Whether everything is allowed."""
        if self._generation != self._authorizer.generation:
            self._renew()
        return self._unlimited

    @property
    def view(self) -> object:
        """A key for caches of answers: two callers of the same view see the same."""
        return None if self.unlimited else (self._principal, self._host, self._scope, self._generation)

    def is_user(self, name: str) -> bool:
        """Return whether the caller is the user of that name, and not merely a token with a scope."""
        return self._scope is None and self._principal == f"User:{name}"

    def loses_administrators(self, users: Container[str], gone: Container[str]) -> bool:
        """Return whether no super user is left without the users `gone`: neither one of `users` nor the caller.

        What certificates and other issuers may name is not known, so that such super users do not count.
        """
        names = {one.removeprefix("User:") for one in self._authorizer.super_users}
        own = self._principal.removeprefix("User:")
        before = {name for name in names if name in users} | (names & {own})
        return bool(before) and all(name in gone for name in before)

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether an operation on a resource is allowed. This is not logged: it is for listings."""
        if self._generation != self._authorizer.generation:
            self._renew()
        if self._unlimited:
            return True
        known = self._known.get((operation, kind, name))
        return self._decide(operation, kind, name) if known is None else known

    def may_on_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on at least one resource of a type (KIP-679).

        With a scope it must have some such resource too, which may be another one.
        """
        if self._scope is not None and not self._scope.permits_any(operation, kind):
            return False
        return self._authorizer.allows_any(self._principal, self._host, operation, kind)

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise the error of the resource's type, such as TOPIC_AUTHORIZATION_FAILED, unless `may` allows it."""
        if not self.may(operation, kind, name):
            raise self.refusal(operation, kind, name)

    def denial(
        self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME
    ) -> BrokerError | None:
        """Return the error that `require` raises, or None."""
        return None if self.may(operation, kind, name) else self.refusal(operation, kind, name)

    def refusal(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> BrokerError:
        """Return the error of a denied operation, and note the denial in the audit log."""
        code, message = REFUSALS[kind]
        authorizer = self._authorizer
        if authorizer.audit is not None:
            rule = authorizer.denying(self._principal, self._host, operation, kind, name)
            said = "" if rule is None else acl_text(rule)
            resource = f"{kind.name}:{name}"
            authorizer.audit.denied(self._principal, self._host, operation.name, resource, said)
        details: dict[str, object] = {"operation": operation.name, "resource_type": kind.name}
        if self._scope is not None and authorizer.allows(self._principal, self._host, operation, kind, name):
            # The owner of the token may do this.
            details["insufficient_scope"] = True
        return BrokerError(code, message, **details)

    async def noted(self, operation: str, resource: str, work: Awaitable[T]) -> T:
        """Carry out a change of an administrator, and note it in the audit log, also if it fails."""
        error = ""
        try:
            return await work
        except BaseException as failure:
            # The change of a client that has left may still be carried out.
            error = failure.code.name if isinstance(failure, BrokerError) else type(failure).__name__
            raise
        finally:
            self.note(operation, resource, error)

    def note(self, operation: str, resource: str, error: str = "") -> None:
        """Note a change in the audit log; `error` is the name of the code with which it has failed."""
        if self._authorizer.audit is not None:
            self._authorizer.audit.change(self._principal, self._host, operation, resource, error)

    def operations(self, kind: ResourceType, name: str, among: Iterable[Operation]) -> int:
        """Return which of some operations are allowed, as bits (KIP-430)."""
        return sum(1 << operation for operation in among if self.may(operation, kind, name))

    def _decide(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        if len(self._known) >= _MAX_DECISIONS:
            self._known.clear()
        scope = self._scope
        allowed = (scope is None or scope.permits(operation, kind, name)) and self._authorizer.allows(
            self._principal, self._host, operation, kind, name
        )
        self._known[operation, kind, name] = allowed
        return allowed

    def _renew(self) -> None:
        self._known.clear()
        self._generation = self._authorizer.generation
        self._unlimited = self._scope is None and self._authorizer.unlimited(self._principal)
