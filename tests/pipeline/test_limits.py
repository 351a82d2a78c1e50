"""Every limit of the pipeline has its reason, and is used."""

from __future__ import annotations

import ast
import inspect

from pipeline import limits
from tests.broker_process import ROOT


def test_every_limit_says_why_and_is_kept() -> None:
    body = ast.parse(inspect.getsource(limits)).body
    code = "\n".join(
        file.read_text() for file in (ROOT / "pipeline").rglob("*.py") if file.name != "limits.py"
    )
    named = 0
    for node, reason in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign):
            continue
        (target,) = node.targets
        assert isinstance(target, ast.Name)
        named += 1
        assert f"limits.{target.id}" in code, f"is not kept {target.id}"
        if target.id != "MIB":
            assert isinstance(reason, ast.Expr) and isinstance(reason.value, ast.Constant), target.id
    assert named > 15
