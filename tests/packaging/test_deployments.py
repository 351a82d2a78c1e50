"""The systemd unit, the compose file, the Kubernetes manifest and the Dockerfile: each read by its own tool, and
each with a command line, probes and a time to stop that fit the program."""

from __future__ import annotations

import json
import re
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
from tests.docs.examples import blocks_of
from tests.packaging.docker_lines import shown
from tests.packaging.dockerfile import stages

OPERATIONS = ROOT / "docs" / "operations"
UNIT = OPERATIONS / "sluice.service"
COMPOSE = OPERATIONS / "compose.yaml"
MANIFEST = OPERATIONS / "kubernetes.yaml"
BIN = Path(sys.executable).parent
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


def asks_for_a_login_over_tls(config: Config) -> bool:
    """Whether no listener is open, and none takes passwords in the clear."""
    return all(endpoint.authentication and endpoint.tls for endpoint in config.listeners)


# --- systemd ----------------------------------------------------------------------------------------------------


def unit(*texts: str) -> dict[str, list[str]]:
    """The values of each name in the service sections of a unit and of the files that change it."""
    found: dict[str, list[str]] = {}
    for text in texts or (UNIT.read_text(),):
        for line in text.partition("[Service]\n")[2].partition("\n[")[0].splitlines():
            name, separator, value = line.partition("=")
            if separator and not name.startswith("#"):
                found.setdefault(name, []).append(value)
    return found


def environment_of(*texts: str) -> dict[str, str]:
    """The environment that a unit gives; of a variable that it sets several times, the last value."""
    return dict(one.split("=", 1) for one in unit(*texts)["Environment"])


def change_of_the_unit() -> str:
    """What the documentation puts beside the unit, for other machines."""
    (block,) = (block for block in blocks_of(OPERATIONS / "systemd.md") if block.language == "ini")
    return block.text


def test_the_unit_runs_the_program_that_its_comment_installs(settings: Any) -> None:
    (command_line,) = unit()["ExecStart"]
    program, serve, *arguments = shlex.split(command_line)
    assert (program, serve) == ("/opt/sluice/bin/sluice", "serve")
    assert f"Install the program as {program}" in UNIT.read_text()
    config = settings(arguments, environment_of())
    assert [str(config.data_dir)] == [f"/var/lib/{name}" for name in unit()["StateDirectory"]]
    assert {endpoint.host for endpoint in config.listeners} == {"127.0.0.1"}
    assert ports_of(config) == ports_of(Config())
    assert asks_for_a_login_over_tls(config)


def test_the_unit_can_be_opened_with_files_that_systemd_hands_over(settings: Any) -> None:
    texts = (UNIT.read_text(), change_of_the_unit())
    environment = {name: value.replace("%d", "/cred") for name, value in environment_of(*texts).items()}
    config = settings(shlex.split(unit()["ExecStart"][0])[2:], environment)
    assert {endpoint.host for endpoint in config.listeners} == {"0.0.0.0"}
    assert asks_for_a_login_over_tls(config)
    (certificate,) = config.tls
    handed = {f"/cred/{one.partition(':')[0]}" for one in unit(*texts)["LoadCredential"]}
    assert {str(certificate.certificate), str(certificate.key), str(config.admin_password_file)} == handed


def test_the_first_user_of_the_unit_is_made_with_what_is_in_its_directory(settings: Any) -> None:
    (line,) = shown("/opt/sluice/bin/sluice")
    config = settings(shlex.split(unit()["ExecStart"][0])[2:], environment_of())
    http = next(endpoint for endpoint in config.listeners if endpoint.scheme == "http")
    given = dict(zip(line[4::2], line[5::2], strict=True))
    assert line[1:4] == ["users", "create", "admin"]
    assert given == {
        "--url": http.url,
        "--ca": f"{config.data_dir}/tls-default.pem",
        "--token-file": f"{config.data_dir}/admin-token",
    }


def test_systemd_gives_the_broker_time_to_stop() -> None:
    assert [float(one) >= STOP_SECONDS for one in unit()["TimeoutStopSec"]] == [True]


@pytest.mark.client("systemd")
@pytest.mark.parametrize("changed", [False, True])
def test_systemd_accepts_the_unit(tmp_path: Path, changed: bool) -> None:
    # systemd wants the program to be there.
    text = UNIT.read_text().replace("/opt/sluice/bin/sluice", str(BIN / "sluice"))
    (tmp_path / "sluice.service").write_text(text)
    if changed:
        (tmp_path / "sluice.service.d").mkdir()
        (tmp_path / "sluice.service.d" / "override.conf").write_text(change_of_the_unit())
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


def interpolated(text: str) -> str:
    """Compose's `${NAME:-default}`, of a name that is not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_the_compose_file_serves_on_what_it_publishes(settings: Any) -> None:
    file = yaml.safe_load(interpolated(COMPOSE.read_text()))
    service = file["services"]["sluice"]
    assert {one.split(":")[0] for one in service["volumes"]} == set(file["volumes"])
    assert "command" not in service, "that of the image"
    config = settings(json.loads(IMAGE["CMD"]), ENVIRONMENT | service["environment"])
    published = [one.split(":") for one in service["ports"]]
    assert [int(inside) for _, _, inside in published] == ports_of(config) == PORTS
    assert {host for host, _, _ in published} == {"127.0.0.1"}
    assert asks_for_a_login_over_tls(config)
    assert config.advertised is not None and str(config.advertised.port) in {one for _, one, _ in published}
    assert [one.split(":")[1] for one in service["volumes"]] == [IMAGE["VOLUME"]] == [str(config.data_dir)]
    assert int(service["stop_grace_period"].removesuffix("s")) >= STOP_SECONDS
    assert (COMPOSE.parent / service["build"]).resolve() == ROOT


def test_the_password_of_compose_is_a_secret_in_a_file_that_git_leaves_out() -> None:
    file = yaml.safe_load(COMPOSE.read_text())
    service = file["services"]["sluice"]
    (name,) = service["secrets"]
    assert service["environment"]["SLUICE_ADMIN_PASSWORD_FILE"] == f"/run/secrets/{name}"
    path = (COMPOSE.parent / file["secrets"][name]["file"]).relative_to(ROOT)
    assert str(path) in (ROOT / ".gitignore").read_text().splitlines()
    assert f"> {path}" in (OPERATIONS / "docker.md").read_text()


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
    config = settings(
        arguments, ENVIRONMENT | {env["name"]: env.get("value", "shop") for env in container["env"]}
    )
    named = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {endpoint.scheme: endpoint.port for endpoint in config.listeners} == named
    service = manifest()["Service"]["spec"]
    assert [(one["port"], named[one["targetPort"]]) for one in service["ports"]] == [(p, p) for p in PORTS]
    assert asks_for_a_login_over_tls(config)
    # Clients are told a name that the service has, and HTTP answers under each of its names.
    names = ["sluice", "sluice.shop", "sluice.shop.svc", "sluice.shop.svc.cluster.local"]
    assert config.advertised is not None
    assert sorted([*config.http_allowed_hosts, config.advertised.host]) == sorted(names)
    assert (config.advertised.port, manifest()["Service"]["metadata"]["name"]) == (9092, names[0])


def test_the_secrets_of_the_pod_are_files_that_the_program_reads(settings: Any) -> None:
    """`kubectl create secret` gives them the keys that the manifest mounts."""
    (container,) = pod()["containers"]
    environment = {env["name"]: env.get("value", "shop") for env in container["env"]}
    config = settings([one.replace("$(NAMESPACE)", "shop") for one in container["args"]], environment)
    secrets = {one["name"]: one["secret"] for one in pod()["volumes"] if "secret" in one}
    mounts = {one["mountPath"]: one for one in container["volumeMounts"] if one["name"] in secrets}
    assert all(one["readOnly"] for one in mounts.values())
    # The kubelet adds the right to read of the group that fsGroup names.
    assert {one["defaultMode"] for one in secrets.values()} == {0o400}
    (certificate,) = config.tls
    read = [certificate.certificate, certificate.key, config.admin_password_file]
    wanted = {(secrets[mounts[str(one.parent)]["name"]]["secretName"], one.name) for one in read if one}
    text = (OPERATIONS / "kubernetes.md").read_text()
    tls, admin = (re.search(rf"create secret {kind} (\S+) (.*)", text) for kind in ("tls", "generic"))
    assert tls is not None and admin is not None
    (key,) = re.findall(r"--from-file=(\w+)=", admin[2])
    assert wanted == {(tls[1], "tls.crt"), (tls[1], "tls.key"), (admin[1], key)}


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
        assert (asked["path"], asked["port"], asked["scheme"]) == (path, "http", "HTTPS")
        assert "get" in served[path]


def test_the_pod_has_time_to_stop_and_no_rights() -> None:
    (container,) = pod()["containers"]
    assert pod()["terminationGracePeriodSeconds"] >= STOP_SECONDS
    assert pod()["securityContext"]["runAsNonRoot"] is True
    user = "{runAsUser}:{runAsGroup}".format(**pod()["securityContext"])
    assert user == IMAGE["USER"] and pod()["securityContext"]["fsGroup"] == int(user.partition(":")[2])
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    mounts = {one["mountPath"] for one in container["volumeMounts"] if not one.get("readOnly")}
    claims = manifest()["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert mounts == {IMAGE["VOLUME"], "/tmp"} and [one["metadata"]["name"] for one in claims] == ["data"]


# --- the image --------------------------------------------------------------------------------------------------


def test_the_linter_finds_nothing_in_the_dockerfile() -> None:
    assert passes(BIN / "hadolint", "--failure-threshold", "style", "Dockerfile") == ""


def docker_run(line: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options of a `docker run`, each with its values, and the arguments after the image."""
    words = iter(line[2:])
    options: dict[str, list[str]] = {}
    for word in words:
        if not word.startswith("-"):
            assert word == "sluice", line
            break
        if word != "-d":
            options.setdefault(word, []).append(next(words))
    return options, list(words)


def docker_runs() -> list[tuple[dict[str, list[str]], list[str]]]:
    """Return all of them that the documentation shows."""
    return [docker_run(line) for line in shown("docker", "run")]


def test_the_docker_lines_fit_the_image(settings: Any) -> None:
    """There is no Docker where tests run: what the lines say is compared with the image."""
    assert {tuple(line[2:]) for line in shown("docker", "build")} == {("-t", "sluice", ".")}
    published = [(options, arguments) for options, arguments in docker_runs() if options]
    assert len(published) == 4
    for options, arguments in published:
        environment = dict(one.split("=", 1) for one in options["-e"])
        config = settings(arguments or json.loads(IMAGE["CMD"]), ENVIRONMENT | environment)
        inside = [int(one.rpartition(":")[2]) for one in options["-p"]]
        assert inside == ports_of(config) and inside[:2] == PORTS
        assert IMAGE["VOLUME"] in [one.split(":")[1] for one in options["-v"]]
        assert [float(one) >= STOP_SECONDS for one in options["--stop-timeout"]] == [True]
        told = [one.advertised or config.advertised for one in config.listeners if one.scheme == "kafka"]
        hosts = {
            "127.0.0.1" if one.startswith("127.0.0.1:") else "broker.example.org" for one in options["-p"]
        }
        assert {one.host for one in told if one} == hosts and None not in told
        if "--insecure" in arguments:
            assert "User:ANONYMOUS" in config.super_users and "User:admin" in config.super_users
            # Commands in the container use the port with a login.
            assert any(
                one.tls and environment["SLUICE_URL"].endswith(f":{one.port}") for one in config.listeners
            )
        else:
            assert asks_for_a_login_over_tls(config)


def test_the_command_of_the_image_is_shown_as_it_is() -> None:
    assert [arguments for options, arguments in docker_runs() if not options] == [json.loads(IMAGE["CMD"])]


def test_files_that_a_container_gets_are_where_it_looks_for_them(settings: Any) -> None:
    ((options, arguments),) = [one for one in docker_runs() if "SLUICE_ADMIN_PASSWORD_FILE" in str(one[0])]
    config = settings(arguments, ENVIRONMENT | dict(one.split("=", 1) for one in options["-e"]))
    (certificate,) = config.tls
    mounted = {one.split(":")[1] for one in options["-v"] if one.endswith(":ro")}
    read = [certificate.certificate, certificate.key, config.admin_password_file]
    assert {str(one.parent) for one in read if one} == mounted


def test_lines_that_go_into_the_container_find_what_the_broker_writes() -> None:
    data = IMAGE["VOLUME"]
    assert {tuple(line[3:]) for line in shown("docker", "exec")} == {
        ("sluice", "sluice", "users", "create", "admin", "--token-file", f"{data}/admin-token")
    }
    assert {tuple(line[2:]) for line in shown("docker", "cp")} == {
        (f"sluice:{ENVIRONMENT['SLUICE_CA']}", ".")
    }
    assert ENVIRONMENT["SLUICE_URL"] == f"https://127.0.0.1:{PORTS[0]}"
    assert {line[line.index("--cacert") + 1] for line in shown("curl")} == {
        Path(ENVIRONMENT["SLUICE_CA"]).name
    }
