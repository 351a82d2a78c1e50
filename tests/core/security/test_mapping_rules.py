"""Rules from distinguished names to principals. Names and rules are those of KIP-371 and of Kafka's own tests."""

from __future__ import annotations

import pytest

from core.security.mapping_rules import MappingError, MappingRules
from core.security.principal import Principal

KIP_371 = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, "
    r"RULE:^CN=(.*?), OU=(.*?), O=(.*?), L=(.*?), ST=(.*?), C=(.*?)$/$1@$2/L, "
    r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)
ROWS = [
    (KIP_371, "CN=Duke,OU=ServiceUsers,O=Org,C=US", "Duke"),
    (KIP_371, "CN=Duke, OU=SME, O=mycp, L=Fulton, ST=MD, C=US", "duke@sme"),
    (KIP_371, "cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
    (KIP_371, "CN=DUKE,OU=JavaSoft,O=Sun Microsystems", "duke"),
    (KIP_371, "OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ("DEFAULT", "CN=a", "CN=a"),
    ("", "CN=a", "CN=a"),
    # The first rule that holds decides.
    ("RULE:^CN=a$/first/, RULE:^CN=a$/second/", "CN=a", "first"),
    ("RULE:^CN=b$/first/, RULE:^CN=a$/second/,DEFAULT", "CN=a", "second"),
    # The whole name must match.
    ("RULE:CN=a/x/", "CN=a,OU=b", None),
    ("RULE:CN=a/x/", "OU=b,CN=a", None),
    ("RULE:CN=a/x/", "CN=a", "x"),
    # What a client puts into one part stays in it.
    (r"RULE:^CN=([^,\\]+),OU=users$/$1/", r"CN=alice\,OU\=users,OU=guests", None),
    (r"RULE:^CN=([^,\\]+),OU=users$/$1/", "CN=alice,OU=users", "alice"),
    (r"RULE:^CN=([^,\\]+).*$/$1/", "CN=a\nb", "a\nb"),
    (r"RULE:^.*CN=(a)$/$1/", "x\nCN=a", None),
    # Groups.
    ("RULE:^CN=(.)(.)(.)(.)(.)(.)(.)(.)(.)(.).*$/$10$1/", "CN=abcdefghij", "ja"),
    ("RULE:^CN=(.).*$/$10/", "CN=ab", "a0"),
    ("RULE:^CN=(a)?(b)$/$1$2/", "CN=b", "b"),
    (r"RULE:^CN=(.)$/\$1\/$1/", "CN=a", "$1/a"),
    (r"RULE:^CN=a\/b$/x/", "CN=a/b", "x"),
    # An empty name is no principal.
    ("RULE:^CN=(.*)$/$1/", "CN=", None),
    ("RULE:^CN=a$//", "CN=a", None),
    # Case.
    ("RULE:^CN=(.*)$/$1/L", "CN=ÄB", "äb"),
    ("RULE:^CN=(.*)$/$1/U", "CN=äb", "ÄB"),
]


@pytest.mark.parametrize(("rules", "name", "wanted"), ROWS)
def test_the_first_rule_that_holds_makes_the_principal(rules: str, name: str, wanted: str | None) -> None:
    assert MappingRules(rules).principal(name) == (None if wanted is None else Principal("User", wanted))


@pytest.mark.parametrize(
    ("rules", "what"),
    [
        ("RULE:a", "'RULE:a' is neither"),
        ("DEFAULT DEFAULT", "neither DEFAULT"),
        ("DEFAULT, rule:a/b/", "'rule:a/b/' is neither"),
        ("RULE:a/b/X", "neither DEFAULT"),
        ("RULE:(/b/", "the pattern '\\(' cannot be read: missing"),
        ("RULE:(?=a)/b/", "cannot be read"),
        ("RULE:(a)/$2/", "names a group"),
        ("RULE:a/$1/", "names a group"),
        ("RULE:a/$x/", "names a group"),
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(rules: str, what: str) -> None:
    with pytest.raises(MappingError, match=what):
        MappingRules(rules)


def test_a_pattern_takes_linear_time() -> None:
    """Java's own expressions take years for this name."""
    assert MappingRules("RULE:^(a|aa)+b$/x/").principal("a" * 20_000) is None
