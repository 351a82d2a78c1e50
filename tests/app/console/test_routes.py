"""The console's files: complete, of this server alone, and without anything that the policy would stop."""

from __future__ import annotations

import re
import tomllib

import httpx
import pytest

from app.console.routes import PAGE

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTML = (PAGE / "index.html").read_text()
SCRIPTS = {file.name: file.read_text() for file in PAGE.glob("*.js")}


async def test_whatever_the_page_and_its_scripts_name_is_there(http: httpx.AsyncClient) -> None:
    named = set(re.findall(r'(?:href|src)="(/[^"]*)"', HTML))
    named |= {
        f"/console/{name}" for text in SCRIPTS.values() for name in re.findall(r'from "\./([^"]+)"', text)
    }
    assert len(named) > 12
    for path in named:
        assert (await http.get(path)).status_code == 200, path
    files = {f"/console/{file.name}" for file in PAGE.iterdir()} - {"/console/index.html"}
    assert files <= named, "no file that is not requested"


async def test_nothing_stands_inline_and_nothing_is_fetched_from_elsewhere() -> None:
    assert not re.search(r"<script(?![^>]*src=)|<style|\sstyle=|\son[a-z]+=|javascript:", HTML)
    for text in (HTML, *SCRIPTS.values(), (PAGE / "console.css").read_text()):
        addresses = re.findall(r"(?:https?:)?//[a-z][^\s\"'`)]*\.[a-z]+[^\s\"'`)]*", text)
        assert [one for one in addresses if "www.w3.org" not in one] == []


async def test_text_never_becomes_markup() -> None:
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|eval\(|new Function|srcdoc"
    for name, text in SCRIPTS.items():
        code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))
        assert not re.search(sinks, code), name


async def test_every_part_that_a_script_asks_for_is_in_the_page() -> None:
    there = set(re.findall(r'data-at="([^"]+)"', HTML))
    asked = {
        name
        for text in SCRIPTS.values()
        for name in re.findall(r"\bat\[\"([a-z-]+)\"\]|\bat\.([a-z]+)\b", text)
    }
    assert {one or other for one, other in asked} <= there
    assert {
        name
        for text in SCRIPTS.values()
        for name in re.findall(r'(?:stamp|openDialog|openFor)\("([a-z-]+)"', text)
    } == set(re.findall(r'<template id="([^"]+)"', HTML))


async def test_every_field_has_a_name_for_screen_readers() -> None:
    ids = set(re.findall(r'<label for="([^"]+)"', HTML))
    inside = re.sub(r"<label[^>]*>.*?</label>", "", HTML, flags=re.DOTALL)
    for field in re.findall(r"<(?:input|select|textarea)[^>]*>", inside):
        found = re.search(r'\bid="([^"]+)"', field)
        assert "aria-label=" in field or (found and found[1] in ids), field


async def test_one_module_sends_all_requests() -> None:
    """Headers that every request needs, such as a token, have one place. EventSource cannot send any."""
    senders = r"\b(?:fetch\(|EventSource\(|XMLHttpRequest|sendBeacon|WebSocket\()"
    assert {name for name, text in SCRIPTS.items() if re.search(senders, text)} == {"api.js"}
    assert len(re.findall(senders, SCRIPTS["api.js"])) == 1


async def test_whatever_is_here_is_installed_too() -> None:
    patterns = tomllib.loads((PAGE.parents[2] / "pyproject.toml").read_text())["tool"]["setuptools"][
        "package-data"
    ]["*"]
    pages = [*PAGE.iterdir(), *(PAGE.parents[1] / "docs" / "page").iterdir()]
    assert {f"*{file.suffix}" for file in pages} <= set(patterns)


async def test_files_are_short_enough_to_be_read() -> None:
    long = {name: len(text.splitlines()) for name, text in SCRIPTS.items() if len(text.splitlines()) >= 400}
    assert long == {}
