"""One environment per job system, below build/peers/. They are kept and used again."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "peers"
CORE = "packages/holdfast-jobs"
EXTRAS = "[postgres,metrics,trace]"

REQUIREMENTS = {
    "pgqueuer": ("pgqueuer[asyncpg]==1.6.0", "uvloop"),
    "procrastinate": ("procrastinate==3.10.0", "psycopg[binary,pool]"),
    "huey": ("huey==3.5.4",),
}
GRAPHILE = ("graphile-worker@0.18.0", "pg@8")
# The requirement of Graphile Worker 0.18. npm has Node.js itself as a package.
NODE = (22, 18)
NODE_PACKAGE = "node@22"
INSTALL_SECONDS = 600


class Unavailable(Exception):
    """A job system that cannot be installed here, with the reason."""


@dataclass(frozen=True, slots=True)
class Environment:
    """How to start the processes of a contender."""

    command: tuple[str, ...]
    env: dict[str, str] = field(default_factory=dict)


def python_environment(name: str) -> Environment:
    """The virtual environment of a job system from PyPI."""
    return _environment(name, name, REQUIREMENTS[name])


def holdfast_environment() -> Environment:
    """Holdfast of this tree, installed as a user installs it: without the other distributions."""
    requirements = ("--editable", f"{ROOT / CORE}{EXTRAS}", "opentelemetry-sdk")
    declared = (ROOT / CORE / "pyproject.toml").read_text()
    return _environment("holdfast", "holdfast", requirements, declared)


def earlier_holdfast(revision: str) -> Environment:
    """Holdfast of an earlier revision."""
    short = short_revision(revision)
    tree = BUILD / "trees" / short
    if not tree.exists():
        tree.mkdir(parents=True)
        parts = ["git", "archive", short, "packages", "pyproject.toml"]
        archive = subprocess.run(parts, cwd=ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive.stdout, check=True)
    requirements = (f"{tree / CORE}{EXTRAS}", "opentelemetry-sdk")
    return _environment("holdfast", f"holdfast-{short}", requirements)


def short_revision(revision: str) -> str:
    try:
        return _output("git", "rev-parse", "--short", f"{revision}^{{commit}}")
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"git knows no commit {revision!r}") from error


def node_environment() -> Environment:
    """Graphile Worker with a Node.js that is new enough."""
    npm = shutil.which("npm")
    if npm is None:
        raise Unavailable("npm is not installed (Node.js 22.18 or newer brings it)")
    folder = BUILD / "node"
    node = _new_enough(shutil.which("node"))
    wanted = (*GRAPHILE, *(() if node else (NODE_PACKAGE,)))
    _install_once(folder, wanted, [npm, "install", "--no-audit", "--no-fund", *wanted])
    node = node or _new_enough(str(folder / "node_modules" / ".bin" / "node"))
    if node is None:
        raise Unavailable("Node.js is older than 22.18, and npm could not install a newer one")
    script = str(ROOT / "bench" / "peers" / "graphile_peer.mjs")
    return Environment((node, script), {"BENCH_NODE_MODULES": str(folder / "node_modules")})


def _environment(
    peer: str, name: str, requirements: tuple[str, ...], declared: str = ""
) -> Environment:
    folder = BUILD / "venvs" / name
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        _run([sys.executable, "-m", "venv", str(folder)], name)
    uv = Path(sys.executable).parent / "uv"
    install = [str(uv), "pip", "install", "-q", "--python", python] if uv.exists() else []
    install = install or [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    _install_once(folder, requirements, [*install, *requirements], declared)
    return adapter_environment(peer, python)


def adapter_environment(peer: str, python: str) -> Environment:
    """Run the adapter of *peer* with an interpreter that has its requirements."""
    return Environment((python, "-m", f"bench.peers.{peer}_peer"), {"PYTHONPATH": str(ROOT)})


def _install_once(
    folder: Path, requirements: tuple[str, ...], command: list[str], declared: str = ""
) -> None:
    """Install unless these requirements are installed, and a tree still *declared* the same."""
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / ".installed"
    digest = hashlib.sha256("\n".join((*requirements, declared)).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"installing {' '.join(requirements)}", file=sys.stderr, flush=True)
    _run(command, folder.name, cwd=folder)
    stamp.write_text(digest)


def _run(command: list[str], name: str, cwd: Path = ROOT) -> None:
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{name} could not be installed: {error}") from error
    if done.returncode:
        raise Unavailable(f"{name} could not be installed: {done.stderr.strip()[-500:]}")


def _new_enough(node: str | None) -> str | None:
    if node is None or not Path(node).exists():
        return None
    try:
        version = _output(node, "--version").removeprefix("v")
    except (OSError, subprocess.CalledProcessError):
        return None
    return node if tuple(map(int, version.split(".")[:2])) >= NODE else None


def _output(*command: str) -> str:
    env = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(
        command, cwd=ROOT, env=env, check=True, capture_output=True, text=True
    ).stdout.strip()
