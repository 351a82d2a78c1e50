"""Where the proxies differ: each field of the dialect, as it shows in answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.main import create_app
from app.rest_v2.dialect import DIALECTS
from core.types import TopicPartition
from tests.app.conftest import client_of, config_for
from tests.app.rest_v2.conftest import JSON, V2, Refused

PROXY = Path(__file__).resolve().parents[3] / "app" / "proxy"
BINARY_BODY = b'{"records":[{"value":"YQ=="}]}'


def test_confluent_is_the_default() -> None:
    assert next(iter(DIALECTS)) == "confluent"
    assert set(DIALECTS) == {"confluent", "karapace", "strimzi", "redpanda"}


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("karapace", (40401, 404), 40401),
        ("strimzi", (40401, 404), 404),
        ("redpanda", (42203, 422), 42203),
    ],
)
def test_a_dialect_has_codes_of_its_own(name: str, code: tuple[int, int], said: int) -> None:
    assert DIALECTS[name].code(*code) == said


def test_no_route_asks_which_dialect_is_spoken() -> None:
    for file in PROXY.glob("*.py"):
        if file.name not in ("dialect.py", "surface.py"):
            text = file.read_text()
            assert "dialect.name" not in text, file
            for name in DIALECTS:
                assert f'"{name}"' not in text, file


@pytest.mark.parametrize(
    ("name", "not_found", "value", "conversion", "of_record"),
    [
        ("confluent", 40401, b'"YQ=="', (422, 42203), (200, 50003)),
        ("karapace", 40401, b"a", (400, 400), (422, 2)),
        ("strimzi", 404, b'"YQ=="', (422, 422), (200, 503)),
        ("redpanda", 40401, b'"YQ=="', (422, 42203), (200, 50003)),
    ],
)
async def test_a_setting_picks_the_dialect(
    tmp_path: Path, refused: Refused, name: str, not_found: int, value: bytes,
    conversion: tuple[int, int], of_record: tuple[int, int],
) -> None:  # fmt: skip
    app = create_app(config_for(tmp_path / "data", v2_dialect=name))
    async with app.lifespan(), client_of(app) as http:
        refused(await http.get("/topics/t/partitions"), 404, not_found)
        for content_type in (V2, "application/json"):
            answer = await http.post("/topics/t", content=BINARY_BODY, headers={"content-type": content_type})
            assert answer.status_code == 200
        broker = app.shared.broker
        read = await http.get("/topics/t/partitions/0/records?offset=1")
        assert read.json()[0]["value"] == "YQ=="
        stored = await broker.records.read(TopicPartition("t", 0), 1, max_bytes=1, max_records=1)
        assert stored.records[0].value == value
        text = {"content-type": "application/vnd.kafka.text.v2+json"}
        answer = await http.post("/topics/t", content=b'{"records":[{"value":1}]}', headers=text)
        refused(answer, *conversion)
        answer = await http.post(
            "/topics/t", content=b'{"records":[{"value":1,"partition":9}]}', headers={"content-type": JSON}
        )
        assert (answer.status_code, answer.json()["offsets"][0]["error_code"]) == of_record
        assert (await http.get("/_health")).status_code == (200 if name == "karapace" else 404)
