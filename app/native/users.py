"""Users and tokens over HTTP. Passwords and tokens are members of bodies, never of paths or queries.

curl -d '{"name": "alice", "password": "…"}' …/users       201
curl -d '{"owner": "alice"}' …/tokens                      201 with the token, which is shown this once
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Query, Request, Response
from pydantic import BaseModel, Field, SecretStr, StrictBool, StrictInt, StrictStr

from app.errors import Problem
from app.http.authentication import SETUP
from app.http.parameters import PATH_NAME
from app.http.principal import principal_of
from app.native.dependencies import BrokerDep, SharedDep
from app.native.record_json import iso_time
from app.native.schemas import Shape
from app.native.token_scopes import TokenScopeRule, to_json, to_rule
from core.security.scopes import MAX_RULES
from core.security.scram import Mechanism
from core.vocabulary.users import TokenInfo, UserInfo

UserName = Annotated[
    str,
    Path(description="The user's name.", examples=["alice"], max_length=1000, json_schema_extra=PATH_NAME),
]
TokenId = Annotated[
    str,
    Path(description="The id of the token, its middle part.", max_length=100, json_schema_extra=PATH_NAME),
]
# No token is made for longer: 100 years.
_MAX_TTL_SECONDS = 100 * 366 * 86_400
_USER_PREFIX = "User:"


class UserToCreate(Shape):
    """A new user. Without a password it can log in with tokens alone."""

    name: StrictStr = Field(
        description="1 to 255 characters, no `/`, no `:`, no control characters.", examples=["alice"]
    )
    password: SecretStr | None = Field(None, description="8 to 1,024 characters. It is never shown again.")


class NewPassword(Shape):
    """Another password for a user."""

    password: SecretStr = Field(description="8 to 1,024 characters. It is never shown again.")


class Credential(BaseModel):
    """A way in which the password of a user can be checked."""

    mechanism: str = Field(description="`SCRAM-SHA-256` or `SCRAM-SHA-512`.")
    iterations: int


class UserDetail(BaseModel):
    """A user."""

    name: str
    created: str
    credentials: list[Credential]


class UserList(BaseModel):
    """All users, by name."""

    items: list[UserDetail]


class TokenToCreate(Shape):
    """A new token."""

    owner: StrictStr | None = Field(
        None,
        description="The owner of the token; by default the user of this request.",
        examples=["alice"],
    )
    description: StrictStr = Field("", description="What it is for; at most 200 characters.")
    ttl_seconds: StrictInt | None = Field(
        None, ge=1, le=_MAX_TTL_SECONDS, description="How long it is valid; by default 90 days."
    )
    never_expires: StrictBool = Field(False, description="It is valid until it is deleted.")
    scope: list[TokenScopeRule] | None = Field(
        None,
        min_length=1,
        max_length=MAX_RULES,
        description="What it may be used for, of the rights of its owner; by default all of them.",
    )


class TokenDetail(BaseModel):
    """A token, without its secret. `expires` is null for never, `scope` for all rights of the owner."""

    id: str
    owner: str
    description: str
    created: str
    expires: str | None
    scope: list[TokenScopeRule] | None


class TokenCreated(TokenDetail):
    """A new token with its text, which is shown this once."""

    token: str = Field(
        description="`slc_<id>_<secret>`: for `Authorization: Bearer`, or as a password of the owner."
    )


class TokenList(BaseModel):
    """All tokens, the oldest first, expired ones included."""

    items: list[TokenDetail]


def _user(info: UserInfo) -> UserDetail:
    credentials = [
        Credential(mechanism=Mechanism(one.mechanism).sasl_name, iterations=one.iterations)
        for one in info.credentials
    ]
    return UserDetail(name=info.name, created=iso_time(info.created_ms) or "", credentials=credentials)


def _token(info: TokenInfo) -> dict[str, object]:
    return {
        "id": info.token_id,
        "owner": info.owner,
        "description": info.description,
        "created": iso_time(info.created_ms),
        "expires": None if info.expires_ms is None else iso_time(info.expires_ms),
        "scope": [to_json(rule) for rule in info.scope] or None,
    }


async def list_users(broker: BrokerDep) -> UserList:
    """The users with their mechanisms; never a password."""
    return UserList(items=[_user(info) for info in broker.users.all()])


async def get_user(broker: BrokerDep, user: UserName) -> UserDetail:
    """A user with its mechanisms."""
    return _user(broker.users.get(user))


async def create_user(
    broker: BrokerDep, shared: SharedDep, request: Request, response: Response, wanted: UserToCreate
) -> UserDetail:
    """Create a user. The setup token of a broker without users allows this once."""
    password = wanted.password.get_secret_value() if wanted.password is not None else None
    users = broker.users
    with ExitStack() as stack:
        if principal_of(request.scope) == SETUP:
            # The setup token is the right: no user exists yet that could have one.
            users = shared.broker.users
            if shared.setup is None or not stack.enter_context(shared.setup.claimed()):
                raise Problem("unauthenticated", "The setup token has been used.")
            if password is None:
                raise Problem(
                    "invalid-request",
                    "The first user needs a password: no other user could make a token for it.",
                )
        made = await users.create(wanted.name, password)
        if users is shared.broker.users:
            address = request.client.host if request.client else ""
            shared.broker.audit.change(SETUP, address, "CREATE_USER", f"USER:{made.name}")
    response.headers["location"] = f"/api/v1/users/{quote(made.name, safe='')}"
    return _user(made)


async def set_user_password(broker: BrokerDep, user: UserName, wanted: NewPassword) -> UserDetail:
    """Give a user another password. Open connections, streams and waiting requests by the old one end."""
    return _user(await broker.users.set_password(user, wanted.password.get_secret_value()))


async def delete_user(broker: BrokerDep, user: UserName) -> Response:
    """Delete a user with its passwords and tokens. Its open connections, streams and waiting requests end.

    The last super user is refused (403, `policy-violation`).
    """
    await broker.users.delete(user)
    return Response(status_code=204)


async def list_tokens(
    broker: BrokerDep,
    owner: Annotated[str | None, Query(description="Only tokens of this user.")] = None,
) -> TokenList:
    """The tokens without their secrets."""
    found = [info for info in broker.tokens.all() if owner in (None, info.owner)]
    return TokenList(items=[TokenDetail.model_validate(_token(info)) for info in found])


async def create_token(
    broker: BrokerDep, request: Request, response: Response, wanted: TokenToCreate
) -> TokenCreated:
    """Create a token. Its text is in this answer alone."""
    owner = wanted.owner
    if owner is None:
        principal = principal_of(request.scope)
        if not principal.startswith(_USER_PREFIX):
            raise Problem("invalid-request", "This request has no user, so the token needs an `owner`.")
        owner = principal.removeprefix(_USER_PREFIX)
    if wanted.never_expires and wanted.ttl_seconds is not None:
        raise Problem("invalid-request", "A token that never expires has no `ttl_seconds`.")
    ttl_ms = None if wanted.ttl_seconds is None else wanted.ttl_seconds * 1000
    info, text = await broker.tokens.create(
        owner,
        wanted.description,
        ttl_ms,
        expires=not wanted.never_expires,
        scope=tuple(to_rule(one) for one in wanted.scope or ()),
    )
    response.headers["cache-control"] = "no-store"
    return TokenCreated.model_validate({**_token(info), "token": text})


async def delete_token(broker: BrokerDep, token: TokenId) -> Response:
    """Delete a token. From now on it is not valid, and what is open by it ends."""
    await broker.tokens.delete(token)
    return Response(status_code=204)
