"""The sdist and the wheel: built without a warning, complete, installed in an empty environment, and started.

One build serves all tests of this file; that is why it is one file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from email.parser import Parser
from pathlib import Path

import pytest

from app.version import VERSION
from tests.broker_process import ROOT
from tests.packaging.running import clean_environment, ephemeral, fetched, wrote_and_read
from tests.packaging.tree import copy_tree, tracked_names

# Packages are downloaded, by a machine that may be busy.
pytestmark = pytest.mark.timeout(600)
UV = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}") or "uv"
PACKAGES = ("app", "core", "migrations", "pipeline")
MODULES = ("pyspark_sluice.py", "pytest_sluice.py")
# What a working tree may hold beside its sources; none of it may get into a package.
LEFT_OVERS = (
    "app/__pycache__/main.cpython-311.pyc", "core/.mypy_cache/x.json", "build/lib/app/removed.py",
    "sluice-data/metadata.db", "pipeline/decode/_decoder.abi3.so",
)  # fmt: skip
# What setuptools says of two tables that pyproject.toml needs in place of a setup.py.
EXPERIMENTAL = re.compile(r"WARNING `\[(.+)\]` in `pyproject.toml` is still \*experimental\*")
# setuptools adds tests/test*.py to every sdist.
TESTS_IN_SDIST = {"tests/test_bench.py", "tests/test_house.py"}


@dataclass(frozen=True)
class Built:
    """What `python -m build` made, and what it printed."""

    tree: Path
    wheel: Path
    sdist: Path
    output: str


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return what a command prints; it must succeed."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=clean_environment(**environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-12_000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist of a used working tree, and the wheel that is built from this sdist."""
    tree = copy_tree(tmp_path_factory.mktemp("tree"))
    for name in LEFT_OVERS:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(b"left over")
    # uv makes the isolated environments: a second, where pip takes ten.
    path = f"{Path(UV).parent}{os.pathsep}{os.environ['PATH']}"
    output = run(sys.executable, "-m", "build", "--installer", "uv", cwd=tree, PATH=path)
    (wheel,), (sdist,) = (tree / "dist").glob("*.whl"), (tree / "dist").glob("*.tar.gz")
    return Built(tree, wheel, sdist, output)


@pytest.fixture(scope="module")
def wheel_names(built: Built) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(built.wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def sdist_names(built: Built) -> set[str]:
    """The files in the sdist, without its top directory."""
    with tarfile.open(built.sdist) as archive:
        return {one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()}


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of programs of an environment that holds the wheel and what it depends on, no more."""
    home = tmp_path_factory.mktemp("installed")
    run(UV, "venv", "--quiet", "--python", sys.executable, home / "venv", cwd=home)
    run(UV, "pip", "install", "--quiet", "--python", home / "venv", built.wheel, cwd=home)
    return home / "venv" / "bin"


def sources() -> set[str]:
    """The files of the repository that the program consists of: its packages and modules, but for the C source."""
    names = {name for name in tracked_names() if name.partition("/")[0] in PACKAGES and name[-2:] != ".c"}
    return names | set(MODULES)


# --- building -------------------------------------------------------------------------------------------------


def test_the_build_prints_no_warning(built: Built) -> None:
    said = re.findall(r"^.*(?:\bwarning\b|deprecat|\berror:).*$", built.output, re.IGNORECASE | re.MULTILINE)
    assert {line for line in said if not EXPERIMENTAL.match(line)} == set()
    assert {EXPERIMENTAL.match(line)[1] for line in said} == {"tool.setuptools.ext-modules", "tool.distutils"}  # type: ignore[index]


def test_the_version_is_written_in_one_place(built: Built) -> None:
    # One wheel for each Python from 3.11 on.
    assert built.wheel.name.startswith(f"sluice-{VERSION}-cp311-abi3-")
    assert built.sdist.name == f"sluice-{VERSION}.tar.gz"
    assert VERSION not in (ROOT / "pyproject.toml").read_text()
    assert VERSION not in (ROOT / "Dockerfile").read_text()


def test_the_wheel_holds_every_file_of_the_program_and_nothing_else(
    built: Built, wheel_names: set[str]
) -> None:
    packed = {name for name in wheel_names if not name.startswith("sluice-")}
    assert packed == sources() | {"pipeline/decode/_decoder.abi3.so"}
    with zipfile.ZipFile(built.wheel) as archive:
        assert [name for name in sources() if archive.read(name) != (ROOT / name).read_bytes()] == []


def test_what_users_see_is_packed(wheel_names: set[str]) -> None:
    assert {
        "app/console/page/index.html",
        "app/py.typed",
        "core/py.typed",
        "pipeline/py.typed",
    } <= wheel_names
    assert {"migrations/env.py", "app/docs/page/index.html"} <= wheel_names
    revisions = {file.name for file in (ROOT / "migrations" / "versions").glob("*.py")}
    assert revisions and {f"migrations/versions/{name}" for name in revisions} <= wheel_names


def test_the_sdist_holds_what_the_wheel_is_built_from(sdist_names: set[str]) -> None:
    assert sources() <= sdist_names
    assert {"pyproject.toml", "README.md", "pipeline/decode/_decoder.c"} <= sdist_names
    assert not [
        name for name in sdist_names if name.endswith((".pyc", ".so", ".db")) or "node_modules" in name
    ]


def test_the_metadata_says_what_pyproject_says(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        said = Parser().parsestr(archive.read(name).decode())
    assert said["Version"] == VERSION
    assert said["Requires-Python"] == ">=3.11"
    assert said.get_payload().startswith("# Sluice")
    assert {"spark", "lake", "pytest", "docs"} <= set(said.get_all("Provides-Extra") or ())


# --- installed --------------------------------------------------------------------------------------------------


def test_an_installed_wheel_serves(installed: Path, tmp_path: Path) -> None:
    program = installed / "sluice"
    assert run(program, "--version", cwd=tmp_path).split()[-1] == VERSION
    with ephemeral([program, "serve", "--ephemeral"], tmp_path, clean_environment()) as told:
        assert wrote_and_read(told["http_url"]) == ["Hello"]
        assert json.loads(fetched(f"{told['http_url']}/openapi.json"))["info"]["version"] == VERSION
        assert json.loads(fetched(f"{told['http_url']}/api/v1"))["version"] == VERSION
        assert f'version="{VERSION}"'.encode() in fetched(f"{told['http_url']}/metrics")
        for page in ("/console", "/docs"):
            assert b"<html" in fetched(told["http_url"] + page)


def test_the_openapi_document_of_the_wheel_is_that_of_the_repository(installed: Path, tmp_path: Path) -> None:
    document = run(installed / "sluice", "openapi", "--stdout", cwd=tmp_path)
    assert document == (ROOT / "openapi" / "openapi.json").read_text()


def test_the_commands_are_installed(installed: Path, tmp_path: Path) -> None:
    with ephemeral([installed / "sluice", "serve", "--ephemeral"], tmp_path, clean_environment()) as told:
        run(installed / "sluice", "produce", "orders", "one", cwd=tmp_path, SLUICE_URL=told["http_url"])
        said = run(installed / "sluice", "consume", "orders", cwd=tmp_path, SLUICE_URL=told["http_url"])
    assert said.splitlines()[0] == "one"


def test_the_compiled_decoder_is_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    said = run(
        installed / "python", "-c", "from pipeline.decode import _decoder; print(_decoder)", cwd=tmp_path
    )
    assert str(installed.parent) in said


def test_the_extra_brings_the_fixtures(built: Built, installed: Path, tmp_path: Path) -> None:
    """Last of these: it adds pytest to the environment."""
    run(UV, "pip", "install", "--quiet", "--python", installed.parent, f"{built.wheel}[pytest]", cwd=tmp_path)
    (tmp_path / "test_mine.py").write_text(
        "def test_mine(sluice, sluice_topic):\n    assert sluice_topic.startswith('test_mine-')\n"
    )
    assert "1 passed" in run(installed / "python", "-m", "pytest", "-q", cwd=tmp_path)


# --- without a C compiler ---------------------------------------------------------------------------------------


def test_without_a_c_compiler_the_package_is_built_without_its_extension(
    built: Built, tmp_path: Path
) -> None:
    """The sdist that others get, unpacked: pip builds from it where there is no wheel."""
    with tarfile.open(built.sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.glob("sluice-*")
    run(UV, "build", "--quiet", "--wheel", "--python", sys.executable, cwd=tree, CC="no-such-compiler")
    (wheel,) = (tree / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
        archive.extractall(tmp_path / "site")
    assert {name for name in packed if not name.startswith("sluice-")} == sources()
    program = (
        "import sys; sys.path.insert(0, '.'); from pipeline.decode import decoder as chosen; "
        "print(chosen.__file__, chosen.decoder().__name__)"
    )
    said = run(sys.executable, "-c", program, cwd=tmp_path / "site").split()
    assert said == [str(tmp_path / "site" / "pipeline" / "decode" / "decoder.py"), "plain_batches"]
