"""A real S3-compatible server of our own: rclone from its wheel, on a temporary folder.

It is a process of its own, checks every signature and knows uploads in parts.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
import tempfile
from pathlib import Path

ACCESS_KEY = "holdfast-tests"
SECRET_KEY = "holdfast-tests-secret"
BUCKET = "artifacts"


class S3Server:
    """Runs until it is closed."""

    def __init__(self) -> None:
        program = Path(sysconfig.get_path("scripts")) / "rclone"
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-s3-"))
        (self.folder / BUCKET).mkdir()
        self._process = subprocess.Popen(
            [
                str(program), "serve", "s3", "--config", "/dev/null", "--addr", "127.0.0.1:0",
                "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}", str(self.folder),
            ],
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        self.endpoint = self._wait()

    def _wait(self) -> str:
        """The server prints its address once it listens."""
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := re.search(r"Starting s3 server on \[(http://[\d.:]+)", line):
                return found[1]
        raise RuntimeError(f"the S3 server did not start: {said}")

    def close(self) -> None:
        self._process.terminate()
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._process.wait(timeout=60)
        shutil.rmtree(self.folder, ignore_errors=True)
