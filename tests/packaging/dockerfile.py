"""The Dockerfile, read and replayed: its steps run in clean roots, without Docker.

A root has the system's programs and Python, read-only, where the image `python:…-slim` has its own; everything else
in it is empty. Each step runs in namespaces of its own for mounts and processes, as root of the clean root alone. It
takes root, and a kernel that lets it mount.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.broker_process import ROOT

DOCKERFILE = ROOT / "Dockerfile"
STEP_SECONDS = 500
# What slim images have from Debian. Missing ones are skipped: some are links into /usr.
SYSTEM = ("usr", "bin", "sbin", "lib", "lib64")
# Files of /etc that a name, a user or a download is looked up in.
ETC = (
    "passwd", "group", "shadow", "gshadow", "login.defs", "hosts", "resolv.conf", "nsswitch.conf", "ld.so.cache",
    "pip.conf", "ssl", "ca-certificates", "default/useradd", "alternatives",
)  # fmt: skip
# Says where packages come from, and through what.
PASSED = re.compile(r"PIP_|UV_|SSL_|REQUESTS_|\w+_proxy$", re.IGNORECASE)


@dataclass
class Stage:
    """One stage of the Dockerfile: its instructions in their order, and the last value of each name."""

    base: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    @property
    def last(self) -> dict[str, str]:
        """The last value of each instruction."""
        return dict(self.steps)

    @property
    def environment(self) -> dict[str, str]:
        """What its ENV sets, as written."""
        return {
            name: value
            for step, text in self.steps
            if step == "ENV"
            for name, value in (part.split("=", 1) for part in shlex.split(text))
        }

    def words(self, name: str) -> list[str]:
        """Return an instruction in JSON form, ENTRYPOINT or CMD."""
        found: list[str] = json.loads(self.last[name])
        return found


def stages(file: Path = DOCKERFILE) -> list[Stage]:
    """Read a Dockerfile: comments are left out, and a line that ends in a backslash is joined with the next."""
    text = re.sub(r"^\s*#.*\n", "", file.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found: list[Stage] = []
    for line in filter(str.strip, text.splitlines()):
        name, rest = line.split(maxsplit=1)
        if name == "FROM":
            base, _, called = rest.partition(" AS ")
            found.append(Stage(base, called or str(len(found))))
        else:
            found[-1].steps.append((name, rest.strip()))
    return found


def can_replay() -> str | None:
    """The program that makes namespaces, where this process may use it."""
    program = shutil.which("unshare")
    if program is None or os.geteuid() != 0:
        return None
    tried = subprocess.run([program, "--mount", "--pid", "--net", "--fork", "true"], capture_output=True)
    return program if tried.returncode == 0 else None


class CleanRoot:
    """A directory that a stage sees as `/`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workdir = "/"
        self.user = "0:0"
        self.environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/root"}
        self.environment |= {name: value for name, value in os.environ.items() if PASSED.match(name)}
        for name in ("opt", "tmp", "root", "var/tmp", "home", "dev", "proc", "usr", "etc"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)
        (directory / "root").chmod(0o755)
        (directory / "tmp").chmod(0o1777)
        for name in ETC:
            source, target = Path("/etc") / name, directory / "etc" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            elif source.exists():
                shutil.copy(source, target)

    def command(self, words: list[str], *, contained: bool = False) -> list[str]:
        """Return a command that runs words in this root, as its user, in its working directory.

        `contained`: its network is its own loopback device and nothing else, and of the root it may write to `/data`
        and `/tmp` alone, as in a container with a read-only root.
        """
        at = shlex.quote(str(self.directory))
        mounts = ["mount --make-rprivate /", f"mount --bind {at} {at}"]
        for name in SYSTEM:
            source = Path("/", name)
            if source.is_symlink():
                mounts.append(f"ln -sfn {os.readlink(source)} {at}/{name}")
            elif source.is_dir():
                mounts.append(f"mkdir -p {at}/{name} && mount --rbind -o ro {source} {at}/{name}")
        prefix = Path(sys.base_prefix)
        if prefix != Path("/usr"):
            # Where the image's Python is; and where it was built for, for its library may be found by that path.
            (self.directory / prefix.relative_to("/")).mkdir(parents=True, exist_ok=True)
            source = shlex.quote(str(prefix))
            mounts += [f"mount --bind -o ro {source} {at}{to}" for to in ("/usr/local", source)]
        mounts += [f"mount --rbind /dev {at}/dev", f"mount -t proc proc {at}/proc"]
        if contained:
            mounts += [f"mount --bind {at}{place} {at}{place}" for place in ("/data", "/tmp")]
            mounts.append(f"mount -o remount,ro,bind {at}")
            mounts.append(f"{shlex.quote(sys.executable)} -c {shlex.quote(_LOOPBACK_UP)}")
        inside = f"cd {shlex.quote(self.workdir)} && exec {shlex.join(words)}"
        enter = f"exec chroot --userspec={self.user} {at} /bin/sh -c {shlex.quote(inside)}"
        options = ["--mount", "--pid", "--fork", "--kill-child", *(["--net"] if contained else [])]
        return ["unshare", *options, "/bin/sh", "-ec", "\n".join([*mounts, enter])]

    def run(self, words: list[str]) -> str:
        """Run a command and return what it prints; it must succeed."""
        done = subprocess.run(
            self.command(words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=STEP_SECONDS,
        )
        assert done.returncode == 0, f"{words}\n{done.stdout[-8000:]}"
        return done.stdout

    def take(self, sources: list[Path], target: str) -> None:
        """Copy files and directories into the root: COPY, of one source or of several into a directory."""
        to = self.directory / (Path(self.workdir) / target).relative_to("/")
        for source in sources:
            if source.is_dir():
                shutil.copytree(source, to, symlinks=True, dirs_exist_ok=True)
            elif target.endswith("/") or len(sources) > 1:
                to.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to)
            else:
                shutil.copy2(source, to)


# Brings the loopback device of a new network namespace up: SIOCGIFFLAGS and SIOCSIFFLAGS of netdevice(7).
_LOOPBACK_UP = (
    "import fcntl, socket, struct; s = socket.socket(); r = struct.pack('16sH14x', b'lo', 0); "
    "flags = struct.unpack('16sH14x', fcntl.ioctl(s, 0x8913, r))[1]; "
    "fcntl.ioctl(s, 0x8914, struct.pack('16sH14x', b'lo', flags | 1))"
)


def replay(tree: Path, directory: Path) -> CleanRoot:
    """Run the steps of all stages over the files of `tree`; return the root of the last stage."""
    roots: dict[str, CleanRoot] = {}
    root = None
    for stage in stages(tree / "Dockerfile"):
        root = roots[stage.name] = CleanRoot(directory / stage.name)
        for name, text in stage.steps:
            _step(root, roots, tree, name, text)
    assert root is not None
    return root


def _step(root: CleanRoot, roots: dict[str, CleanRoot], tree: Path, name: str, text: str) -> None:
    match name:
        case "WORKDIR":
            root.workdir = text
            (root.directory / text.lstrip("/")).mkdir(parents=True, exist_ok=True)
        case "COPY":
            words = shlex.split(text)
            origin = tree
            if words[0].startswith("--from="):
                origin = roots[words.pop(0).removeprefix("--from=")].directory
            *sources, target = words
            root.take([origin / source.lstrip("/") for source in sources], target)
        case "RUN":
            root.run(["/bin/sh", "-c", text])
        case "ENV":
            for part in shlex.split(text):
                key, value = part.split("=", 1)
                root.environment[key] = re.sub(
                    r"\$(\w+)", lambda match: root.environment.get(match[1], ""), value
                )
        case "USER":
            root.user = text
        case "VOLUME" | "EXPOSE" | "STOPSIGNAL" | "HEALTHCHECK" | "ENTRYPOINT" | "CMD":
            pass  # these say how a container runs, and do nothing to the image
        case _:
            raise AssertionError(f"The replay does not know the instruction {name}.")
