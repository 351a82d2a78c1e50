"""DescribeConfigs (key 32): settings with their values and where these come from (KIP-133).

Versions 0–4, flexible from 4.

Resource type 2 is a topic, 4 a broker. Version 1 names sources and synonyms (KIP-226), 3 types and
documentation (KIP-569).
"""

from __future__ import annotations

from typing import Annotated

from core.protocol.schema import F, Int8, Int16, Int32, Message


class DescribeConfigsResource(Message):
    """An entry of `DescribeConfigsRequest.resources`."""

    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    # Null asks for all.
    configuration_keys: Annotated[list[str] | None, F("0+", nullable="0+")] = []


class DescribeConfigsRequest(Message):
    """DescribeConfigs request."""

    resources: Annotated[list[DescribeConfigsResource], F("0+")] = []
    include_synonyms: Annotated[bool, F("1+")] = False
    include_documentation: Annotated[bool, F("3+")] = False


class DescribeConfigsSynonym(Message):
    """An entry of `DescribeConfigsResourceResult.synonyms`."""

    name: Annotated[str, F("1+")] = ""
    value: Annotated[str | None, F("1+", nullable="0+")] = ""
    source: Annotated[Int8, F("1+")] = 0


class DescribeConfigsResourceResult(Message):
    """An entry of `DescribeConfigsResult.configs`."""

    name: Annotated[str, F("0+")] = ""
    value: Annotated[str | None, F("0+", nullable="0+")] = ""
    read_only: Annotated[bool, F("0+")] = False
    # 1 topic, 2 to 4 broker (dynamic, cluster-wide, static), 5 default.
    config_source: Annotated[Int8, F("1+")] = -1
    # In place of the source.
    is_default: Annotated[bool, F("0")] = False
    is_sensitive: Annotated[bool, F("0+")] = False
    synonyms: Annotated[list[DescribeConfigsSynonym], F("1+")] = []
    # 1 bool, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password.
    config_type: Annotated[Int8, F("3+")] = 0
    documentation: Annotated[str | None, F("3+", nullable="0+")] = None


class DescribeConfigsResult(Message):
    """An entry of `DescribeConfigsResponse.results`."""

    error_code: Annotated[Int16, F("0+")] = 0
    error_message: Annotated[str | None, F("0+", nullable="0+")] = None
    resource_type: Annotated[Int8, F("0+")] = 0
    resource_name: Annotated[str, F("0+")] = ""
    configs: Annotated[list[DescribeConfigsResourceResult], F("0+")] = []


class DescribeConfigsResponse(Message):
    """DescribeConfigs response."""

    throttle_time_ms: Annotated[Int32, F("0+")] = 0
    results: Annotated[list[DescribeConfigsResult], F("0+")] = []
