"""The systemd unit, the compose file, the Kubernetes manifest and the Dockerfile: each read by its own tool, and
each with a command line, probes and a time to stop that fit the program."""

from __future__ import annotations

import configparser
import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from compose_spec import PyCompose

from app import __main__ as command
from core.config import Config
from tests.broker_process import ROOT
from tests.docs.examples import BLOCKS, commands_of
from tests.packaging.dockerfile import stages

OPERATIONS = ROOT / "docs" / "operations"
UNIT = OPERATIONS / "sluice.service"
COMPOSE = OPERATIONS / "compose.yaml"
MANIFEST = OPERATIONS / "kubernetes.yaml"
BIN = Path(sys.executable).parent
HERE = "tests/packaging/test_deployments.py"
# The drain is limited; the logs and SQLite are closed after it.
STOP_SECONDS = Config().drain_timeout_ms / 1000 + 10
# systemd-analyze rates what a service may do, from 0 (nothing) to 10 (everything), here in tenths.
EXPOSURE = 15


IMAGE = stages()[-1].last
ENVIRONMENT = stages()[-1].environment
PORTS = [int(port) for port in IMAGE["EXPOSE"].split()]


def passes(*arguments: str | Path, directory: Path = ROOT) -> str:
    """Return what a tool prints; it must find nothing wrong."""
    done = subprocess.run(
        [str(one) for one in arguments], cwd=directory, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that gives the settings with which a command line would serve."""
    seen: list[Config] = []
    monkeypatch.setattr("app.serve.run", lambda config: seen.append(config) or 0)

    def of(arguments: list[str], environment: dict[str, str] | None = None) -> Config:
        done = CliRunner().invoke(command.main, ["serve", *arguments], env=environment)
        assert done.exit_code == 0, done.output
        assert done.stderr == ""
        return seen[-1]

    return of


def ports_of(config: Config) -> list[int]:
    """The ports of all listeners."""
    return [endpoint.port for endpoint in config.listeners]


# --- systemd ----------------------------------------------------------------------------------------------------


def unit() -> configparser.SectionProxy:
    """The service section of the unit; of a name that is there several times, the last one."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, comment_prefixes="#")
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(UNIT.read_text())
    return parser["Service"]


def test_the_unit_runs_the_program_that_its_comment_installs(settings: Any) -> None:
    program, serve, *arguments = shlex.split(unit()["ExecStart"])
    assert (program, serve) == ("/opt/sluice/bin/sluice", "serve")
    assert f"Install the program as {program}" in UNIT.read_text()
    config = settings(arguments)
    assert config.data_dir == Path("/var/lib") / unit()["StateDirectory"]
    assert {endpoint.host for endpoint in config.listeners} == {"127.0.0.1"}
    assert ports_of(config) == ports_of(Config())


def test_systemd_gives_the_broker_time_to_stop() -> None:
    assert float(unit()["TimeoutStopSec"]) >= STOP_SECONDS


@pytest.mark.client("systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    # systemd wants the program to be there.
    text = UNIT.read_text().replace("/opt/sluice/bin/sluice", str(BIN / "sluice"))
    (tmp_path / "sluice.service").write_text(text)
    said = passes(
        "systemd-analyze", "verify", "--man=no", "--recursive-errors=one", tmp_path / "sluice.service"
    )
    assert "sluice.service" not in said, said


@pytest.mark.client("systemd")
def test_the_unit_may_do_little() -> None:
    limit = f"--threshold={EXPOSURE}"
    passes("systemd-analyze", "security", "--offline=true", limit, "--no-pager", UNIT)


# --- compose ----------------------------------------------------------------------------------------------------


def test_the_compose_file_is_one() -> None:
    text = COMPOSE.read_text()
    PyCompose.from_yaml(text).validate()
    # It would be told.
    with pytest.raises(ValueError, match="read_olny"):
        PyCompose.from_yaml(text.replace("read_only", "read_olny"))


def test_the_compose_file_serves_on_what_it_publishes(settings: Any) -> None:
    file = yaml.safe_load(COMPOSE.read_text())
    service = file["services"]["sluice"]
    assert {one.split(":")[0] for one in service["volumes"]} == set(file["volumes"])
    config = settings(service["command"], ENVIRONMENT)
    published = [one.split(":") for one in service["ports"]]
    assert [int(inside) for _, _, inside in published] == ports_of(config) == PORTS
    assert {host for host, _, _ in published} == {"127.0.0.1"}, "there is no authentication"
    assert config.advertised is not None and str(config.advertised.port) in {one for _, one, _ in published}
    assert [one.split(":")[1] for one in service["volumes"]] == [IMAGE["VOLUME"]] == [str(config.data_dir)]
    assert int(service["stop_grace_period"].removesuffix("s")) >= STOP_SECONDS
    assert (COMPOSE.parent / service["build"]).resolve() == ROOT


# --- Kubernetes -------------------------------------------------------------------------------------------------


def manifest() -> dict[str, dict[str, Any]]:
    """The objects of the manifest by their kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def pod() -> dict[str, Any]:
    """The pod of the StatefulSet."""
    found: dict[str, Any] = manifest()["StatefulSet"]["spec"]["template"]["spec"]
    return found


def test_kubernetes_accepts_the_manifest() -> None:
    assert set(manifest()) == {"Service", "NetworkPolicy", "StatefulSet"}
    passes(BIN / "kubernetes-validate", "--strict", MANIFEST)


def test_the_pod_serves_on_the_ports_of_its_service(settings: Any) -> None:
    (container,) = pod()["containers"]
    arguments = [one.replace("$(NAMESPACE)", "shop") for one in container["args"]]
    config = settings(arguments, ENVIRONMENT)
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {endpoint.scheme: endpoint.port for endpoint in config.listeners} == named
    service = manifest()["Service"]["spec"]
    assert [(one["port"], named[one["targetPort"]]) for one in service["ports"]] == [(p, p) for p in PORTS]
    assert [env["name"] for env in container["env"]] == ["NAMESPACE"]
    # Clients are told a name that the service has, and HTTP answers under each of its names.
    names = ["sluice", "sluice.shop", "sluice.shop.svc", "sluice.shop.svc.cluster.local"]
    assert config.advertised is not None
    assert sorted([*config.http_allowed_hosts, config.advertised.host]) == sorted(names)
    assert (config.advertised.port, manifest()["Service"]["metadata"]["name"]) == (9092, names[0])


def test_the_labels_lead_from_the_service_to_the_pod() -> None:
    objects = manifest()
    labels = objects["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert objects["Service"]["spec"]["selector"] == labels
    assert objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"] == labels
    assert objects["StatefulSet"]["spec"]["selector"]["matchLabels"] == labels
    assert objects["StatefulSet"]["spec"]["serviceName"] == objects["Service"]["metadata"]["name"]


def test_the_probes_ask_routes_that_exist() -> None:
    (container,) = pod()["containers"]
    served = json.loads((ROOT / "openapi" / "openapi.json").read_text())["paths"]
    for name, path in (
        ("startupProbe", "/readyz"),
        ("readinessProbe", "/readyz"),
        ("livenessProbe", "/livez"),
    ):
        asked = container[name]["httpGet"]
        assert (asked["path"], asked["port"]) == (path, "http")
        assert "get" in served[path]
    assert "http://127.0.0.1:8082/readyz" in IMAGE["HEALTHCHECK"]


def test_the_pod_has_time_to_stop_and_no_rights() -> None:
    (container,) = pod()["containers"]
    assert pod()["terminationGracePeriodSeconds"] >= STOP_SECONDS
    assert pod()["securityContext"]["runAsNonRoot"] is True
    user = "{runAsUser}:{runAsGroup}".format(**pod()["securityContext"])
    assert user == IMAGE["USER"] and pod()["securityContext"]["fsGroup"] == int(user.partition(":")[2])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    mounts = {one["mountPath"] for one in container["volumeMounts"]}
    claims = manifest()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert mounts == {IMAGE["VOLUME"], "/tmp"} and [one["metadata"]["name"] for one in claims] == ["data"]


# --- the image --------------------------------------------------------------------------------------------------


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    assert passes(BIN / "hadolint", "--failure-threshold", "style", "Dockerfile") == ""


def docker_lines() -> list[list[str]]:
    """The words of the docker commands that the documentation shows."""
    blocks = [block for block in BLOCKS if block.options.get("by") == HERE]
    return [shlex.split(one.text) for block in blocks for one in commands_of(block)]


def test_the_docker_lines_fit_the_image(settings: Any) -> None:
    """There is no Docker where tests run: what the lines say is compared with the image."""
    builds = [line for line in docker_lines() if line[:2] == ["docker", "build"]]
    runs = [line for line in docker_lines() if line[:2] == ["docker", "run"]]
    assert len(builds) + len(runs) == len(docker_lines()) and builds and runs
    assert {tuple(line[2:]) for line in builds} == {("-t", "sluice", ".")}
    for line in runs:
        at = line.index("sluice")
        options: dict[str, list[str]] = {}
        for name, value in zip(line[2:at:2], line[3:at:2], strict=True):
            options.setdefault(name, []).append(value)
        assert [int(one.rpartition(":")[2]) for one in options["-p"]] == PORTS
        assert [one.partition(":")[2] for one in options["-v"]] == [IMAGE["VOLUME"]]
        assert [float(one) >= STOP_SECONDS for one in options["--stop-timeout"]] == [True]
        environment = dict(one.split("=", 1) for one in options.get("-e", []))
        config = settings(line[at + 1 :] or json.loads(IMAGE["CMD"]), ENVIRONMENT | environment)
        assert ports_of(config) == PORTS
