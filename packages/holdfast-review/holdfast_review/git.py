"""Reads a change from a git repository that may be hostile, without executing its code.

Git runs plumbing commands that only read objects, with an argument vector and a clean environment.
No hook, external diff, text conversion, filter, submodule, pager or remote is used. The repository,
with links resolved, must be below an allowed folder. So must every repository that it borrows
objects from.
"""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from holdfast.errors import ConfigInvalid
from holdfast_review.refusal import ChangeMissing, ChangeTooLarge, GitFailed, PathRefused

CHUNK_BYTES = 64 * 1024
# Names of branches, tags and commits with ancestors; no options, ranges or searches.
REVISION = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_./~^+-]{0,198}[0-9A-Za-z_~^])?")
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.pager": "cat",
    "core.alternateRefsCommand": "",
    # Larger files count as binary, so that their diffs do not exhaust memory.
    "core.bigFileThreshold": "4m",
    "core.quotePath": "true",
    # A change could hide files with attributes. Git reads these from the work tree and the index,
    # but not in a bare repository, hence --bare. Some git versions read a tree instead; the empty
    # tree has none.
    "core.bare": "true",
    "attr.tree": "4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "diff.external": "",
    "protocol.allow": "never",
    "submodule.recurse": "false",
}
_DIFF = (
    "diff-tree",
    "-r",
    "-p",
    "--unified=5",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--no-commit-id",
    "--no-relative",
    "--full-index",
    "--find-renames",
    "-l400",
    # Submodules count as unread; git only compares the ids in the two trees.
    "--ignore-submodules=none",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
# Padded and cut to 300 columns each, which bounds the memory.
_COMMIT_LINE = "--format=%<(300,trunc)%an%x1f%<(300,trunc)%s"
MOST_ALTERNATES = 16
# A commit object without files: names and a message.
LARGEST_COMMIT = 1024 * 1024
# Git packs loose files long before this number.
MOST_FILES = 200_000


@dataclass(frozen=True, slots=True)
class Range:
    """A range of commit ids. *base* is empty for the first commit of a repository.

    The patch leads from *merge_base*, the common ancestor, to *head*.
    """

    base: str
    head: str
    merge_base: str


@dataclass(frozen=True, slots=True)
class Repositories:
    """The folders that may contain repositories, and the git executable."""

    allowed: tuple[Path, ...]
    executable: str = "git"
    seconds: float = 60.0

    def open(self, repository: str) -> Repository:
        """Open the repository at a path. Raises PathRefused or ChangeMissing."""
        if "\0" in repository or not Path(repository).is_absolute():
            raise PathRefused(problem="not_absolute")
        place = self._inside(Path(repository), "outside")
        git = _git_folder(place)
        if git is None:
            raise ChangeMissing(what="repository")
        git = self._inside(git, "git_folder")
        objects = self._common(git) / "objects"
        self._check_objects(objects, set())
        return Repository(git, place, self.executable, self.seconds)

    def _inside(self, path: Path, problem: str) -> Path:
        """Return the path with links resolved, if it is below an allowed folder."""
        try:
            real = path.resolve(strict=True)
            roots = [root.resolve(strict=True) for root in self.allowed if root.exists()]
        except (OSError, RuntimeError):
            # Callers cannot distinguish a missing path from a forbidden one.
            raise PathRefused(problem=problem) from None
        if not any(real == root or root in real.parents for root in roots):
            raise PathRefused(problem=problem)
        return real

    def _common(self, git: Path) -> Path:
        """Return the common folder of a linked work tree, which is in its main repository."""
        said = _small_text(git / "commondir")
        return git if said is None else self._inside(git / said.strip(), "commondir")

    def _check_objects(self, objects: Path, seen: set[Path]) -> None:
        """Check that repositories which objects are borrowed from are allowed."""
        real = self._inside(objects, "objects")
        if real in seen:
            return
        seen.add(real)
        if len(seen) > MOST_ALTERNATES:
            raise PathRefused(problem="alternates")
        self._check_links(real)
        for line in (_small_text(real / "info" / "alternates") or "").splitlines():
            if line.strip() and not line.startswith("#"):
                self._check_objects(real / line.strip(), seen)

    def _check_links(self, objects: Path) -> None:
        """Check that no link among the objects leads outside."""
        todo, left = [objects], MOST_FILES
        while todo:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        raise PathRefused(problem="too_many_files")
                    path = Path(entry.path)
                    if entry.is_symlink():
                        path = self._inside(path, "link")
                    if entry.is_dir():
                        todo.append(path)


@dataclass(frozen=True, slots=True)
class Repository:
    """A repository that may be read."""

    git: Path
    place: Path
    executable: str
    seconds: float

    def find_range(self, head: str, base: str = "") -> Range:
        """Resolve two names to commits. *head* alone means a commit and its parent."""
        commit = self._commit(head, "head")
        if base:
            start = self._commit(base, "base")
            return Range(start, commit, self._merge_base(start, commit))
        parent = self._parent(commit)
        return Range(parent, commit, parent)

    def read_diff(
        self, wanted: Range, *, max_bytes: int, step: Callable[[], None] = lambda: None
    ) -> bytes:
        """Return the changes of *head*. Raises ChangeTooLarge before memory is exhausted."""
        trees = (wanted.merge_base or "--root", wanted.head)
        code, output = self._run([*_DIFF, *trees, "--"], max_bytes, step)
        if code:
            raise GitFailed(command="diff-tree", code=code)
        return output

    def read_commits(
        self, wanted: Range, *, is_single: bool, most: int = 100
    ) -> tuple[list[tuple[str, str]], int]:
        """Return author and title of the newest *most* commits, and the total number."""
        limit = 1 if is_single else most
        within = [wanted.head] if is_single else [wanted.head, f"^{wanted.merge_base}"]
        output = self._ask_list([f"--max-count={limit}", _COMMIT_LINE, *within])
        lines = (line.partition("\x1f") for line in output.split("\n") if "\x1f" in line)
        commits = [(author.strip(), title.strip()) for author, _, title in lines]
        if len(commits) < most:
            return commits, len(commits)
        return commits, int(self._ask_list(["--count", *within]))

    def _ask_list(self, arguments: Sequence[str]) -> str:
        code, output = self._run(["rev-list", *arguments, "--"], LARGEST_COMMIT)
        if code:
            raise GitFailed(command="rev-list", code=code)
        return output.decode("utf-8", "replace")

    def _commit(self, revision: str, what: str) -> str:
        if not REVISION.fullmatch(revision) or ".." in revision:
            raise ChangeMissing(what=what, problem="not_a_revision")
        found = self._ask_commit(revision)
        if not found:
            raise ChangeMissing(what=what)
        return found

    def _parent(self, commit: str) -> str:
        """Return the first parent of a commit; empty for the first commit of a repository."""
        code, output = self._run(["cat-file", "commit", commit], LARGEST_COMMIT)
        if code:
            raise GitFailed(command="cat-file", code=code)
        head, _, _ = output.partition(b"\n\n")
        # Read from the commit itself: in a shallow clone, git reports no parent for the last
        # commit.
        named = next((line for line in head.split(b"\n") if line.startswith(b"parent ")), None)
        if named is None:
            return ""
        parent = self._ask_commit(named.removeprefix(b"parent ").decode("ascii", "replace"))
        if not parent:
            raise ChangeMissing(what="head", problem="shallow")
        return parent

    def _merge_base(self, base: str, head: str) -> str:
        """Return the common ancestor, so that later changes on *base* do not appear as reverted."""
        code, output = self._run(["merge-base", base, head], 1_000)
        name = output.decode("ascii", "replace").strip()
        if code == 0 and _OBJECT.fullmatch(name):
            return name
        if code != 1:
            raise GitFailed(command="merge-base", code=code)
        _, answer = self._run(["rev-parse", "--is-shallow-repository"], 1_000)
        problem = "shallow" if answer.strip() == b"true" else "unrelated"
        raise ChangeMissing(what="base", problem=problem)

    def _ask_commit(self, revision: str) -> str:
        """Return the id of a commit; empty if it does not exist."""
        ask = ["rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"]
        code, output = self._run(ask, 1_000)
        name = output.decode("ascii", "replace").strip()
        if code == 0 and _OBJECT.fullmatch(name):
            return name
        if code not in (0, 1, 128):
            raise GitFailed(command="rev-parse", code=code)
        return ""

    def _run(
        self, arguments: Sequence[str], max_bytes: int, step: Callable[[], None] = lambda: None
    ) -> tuple[int, bytes]:
        """Return the exit code and output of one call, bounded in time and size."""
        settings = {**_SETTINGS, "safe.directory": str(self.place)}
        vector = [self.executable, "--no-pager", "--bare", f"--git-dir={self.git}"]
        for name, value in settings.items():
            vector += ("-c", f"{name}={value}")
        try:
            # A new session, so that child processes end with it.
            process = subprocess.Popen(  # noqa: S603
                [*vector, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # It may quote names and texts.
                stderr=subprocess.DEVNULL,
                env=_environment(self.git),
                cwd=self.git,
                close_fds=True,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ConfigInvalid("git is not installed. Install it.", missing="git") from None
        return _Output(process, self.seconds).read(max_bytes, step)


class _Output:
    """Reads the output of a process up to a size and a time limit."""

    def __init__(self, process: subprocess.Popen[bytes], seconds: float) -> None:
        self._process = process
        self._is_late = threading.Event()
        self._timer = threading.Timer(seconds, self._end_late)
        self._timer.daemon = True

    def read(self, max_bytes: int, step: Callable[[], None]) -> tuple[int, bytes]:
        found = bytearray()
        stdout = self._process.stdout
        assert stdout is not None
        self._timer.start()
        try:
            while chunk := stdout.read(CHUNK_BYTES):
                found += chunk
                if len(found) > max_bytes:
                    raise ChangeTooLarge(limit_bytes=max_bytes)
                step()
            code = self._process.wait()
        finally:
            self._timer.cancel()
            self._end()
            stdout.close()
        if self._is_late.is_set():
            raise GitFailed(problem="timeout")
        return code, bytes(found)

    def _end_late(self) -> None:
        self._is_late.set()
        self._end()

    def _end(self) -> None:
        # A process that was waited for has released its pid.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _git_folder(place: Path) -> Path | None:
    """Return the git folder: inside a work tree, elsewhere, or the path itself."""
    inner = place / ".git"
    if inner.is_file():
        said = _small_text(inner) or ""
        return place / said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") else None
    for folder in (inner, place):
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return folder
    return None


def _small_text(path: Path) -> str | None:
    """Return the text of a small file; None if it is missing or too large to be git's."""
    try:
        # Opening a named pipe would block.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PathRefused(problem="no_file")
            return file.read(CHUNK_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError:
        raise PathRefused(problem="unreadable") from None


def _environment(git: Path) -> dict[str, str]:
    """Return a clean environment with PATH only: no credentials and no user settings."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        # Overrides the protocol settings of the repository; an empty list allows none.
        "GIT_ALLOW_PROTOCOL": "",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(git.parent),
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_SYSTEM": os.devnull,
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }
