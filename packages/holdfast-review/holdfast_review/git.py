"""Reads a change out of a git repository that may be hostile, and runs nothing of its.

Git is called by an argument vector with an environment of its own, on plumbing commands that look
at objects only. No hook, external diff, text conversion, filter, submodule, pager or remote has a
part in it. A repository is read only if it lies, links resolved, below a folder that is allowed,
and so must everything that it borrows objects from.
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
# Plain names of branches, tags and commits with their ancestors; no options, ranges or searches.
REVISION = re.compile(r"[0-9A-Za-z_](?:[0-9A-Za-z_./~^+-]{0,198}[0-9A-Za-z_~^])?")
_OBJECT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.attributesFile": os.devnull,
    "core.pager": "cat",
    "core.alternateRefsCommand": "",
    # Larger files count as binary, so that no diff of theirs fills the memory.
    "core.bigFileThreshold": "4m",
    "core.quotePath": "true",
    # A change could hide its files by attributes. They are read from the work tree and the index,
    # but not of a bare repository, as --bare has to say, too. Of that some gits read a tree, and
    # the empty one has none.
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
    # Counted as unread; only the ids in the two trees are compared.
    "--ignore-submodules=none",
    "--submodule=short",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
# Padded and cut to 300 columns each, so that no title fills the memory.
_COMMIT_LINE = "--format=%<(300,trunc)%an%x1f%<(300,trunc)%s"
MOST_ALTERNATES = 16
# A commit without its files: names, and a message.
LARGEST_COMMIT = 1024 * 1024
# More loose files than that are packed long before.
MOST_FILES = 200_000


@dataclass(frozen=True, slots=True)
class Range:
    """Commits by their ids; no *base* for the first commit of a repository.

    The patch leads from *merge_base*, where the two parted, to *head*.
    """

    base: str
    head: str
    merge_base: str


@dataclass(frozen=True, slots=True)
class Repositories:
    """The folders below which repositories may be read, and the git that reads them."""

    allowed: tuple[Path, ...]
    executable: str = "git"
    seconds: float = 60.0

    def open(self, repository: str) -> Repository:
        """The repository at a path. Raises PathRefused or ChangeMissing."""
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
        """The path with all links resolved, if it is below an allowed folder."""
        try:
            real = path.resolve(strict=True)
            roots = [root.resolve(strict=True) for root in self.allowed if root.exists()]
        except (OSError, RuntimeError):
            # What is not there and what may not be read look alike to whoever asks.
            raise PathRefused(problem=problem) from None
        if not any(real == root or root in real.parents for root in roots):
            raise PathRefused(problem=problem)
        return real

    def _common(self, git: Path) -> Path:
        """Where a linked work tree has its objects: in the repository that it is linked to."""
        said = _small_text(git / "commondir")
        return git if said is None else self._inside(git / said.strip(), "commondir")

    def _check_objects(self, objects: Path, seen: set[Path]) -> None:
        """Objects may be borrowed from other repositories, so these must be allowed, too."""
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
        """No link among objects may lead outside."""
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
        """The commits that two names stand for; a *head* alone is a commit and its parent."""
        commit = self._commit(head, "head")
        if base:
            start = self._commit(base, "base")
            return Range(start, commit, self._merge_base(start, commit))
        parent = self._parent(commit)
        return Range(parent, commit, parent)

    def read_diff(
        self, wanted: Range, *, max_bytes: int, step: Callable[[], None] = lambda: None
    ) -> bytes:
        """What *head* changes. Raises ChangeTooLarge before it fills the memory."""
        trees = (wanted.merge_base or "--root", wanted.head)
        code, output = self._run([*_DIFF, *trees, "--"], max_bytes, step)
        if code:
            raise GitFailed(command="diff-tree", code=code)
        return output

    def read_commits(
        self, wanted: Range, *, is_single: bool, most: int = 100
    ) -> tuple[list[tuple[str, str]], int]:
        """Author and title of the newest *most* commits, and how many there are in all."""
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
        """The first parent of a commit; blank for the first commit of a repository."""
        code, output = self._run(["cat-file", "commit", commit], LARGEST_COMMIT)
        if code:
            raise GitFailed(command="cat-file", code=code)
        head, _, _ = output.partition(b"\n\n")
        # Taken from the commit itself: in a shallow clone git says that its last one has none.
        named = next((line for line in head.split(b"\n") if line.startswith(b"parent ")), None)
        if named is None:
            return ""
        parent = self._ask_commit(named.removeprefix(b"parent ").decode("ascii", "replace"))
        if not parent:
            raise ChangeMissing(what="head", problem="shallow")
        return parent

    def _merge_base(self, base: str, head: str) -> str:
        """Where two commits parted, so that what was done on *base* since is not undone in it."""
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
        """The id of a commit; blank if there is none."""
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
        """The exit code and output of one call, bounded in time and size."""
        settings = {**_SETTINGS, "safe.directory": str(self.place)}
        vector = [self.executable, "--no-pager", "--bare", f"--git-dir={self.git}"]
        for name, value in settings.items():
            vector += ("-c", f"{name}={value}")
        try:
            # A session of its own, so that its children end with it.
            process = subprocess.Popen(  # noqa: S603
                [*vector, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # It may quote names and texts, and nobody needs them.
                stderr=subprocess.DEVNULL,
                env=_environment(self.git),
                cwd=self.git,
                close_fds=True,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise ConfigInvalid("There is no git here. Install it.", missing="git") from None
        return _Output(process, self.seconds).read(max_bytes, step)


class _Output:
    """What a process says, until it ends, says too much or takes too long."""

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
        # A process that was waited for has given its number back.
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def _git_folder(place: Path) -> Path | None:
    """The folder of a repository's objects and names: within a work tree, elsewhere, or itself."""
    inner = place / ".git"
    if inner.is_file():
        said = _small_text(inner) or ""
        return place / said.removeprefix("gitdir:").strip() if said.startswith("gitdir:") else None
    for folder in (inner, place):
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir():
            return folder
    return None


def _small_text(path: Path) -> str | None:
    """The text of a small file; None if there is none. What is larger is not one of git's."""
    try:
        # A pipe in its place would never let go of us.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise PathRefused(problem="no_file")
            return file.read(CHUNK_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError:
        raise PathRefused(problem="unreadable") from None


def _environment(git: Path) -> dict[str, str]:
    """Nothing of ours but the way to programs: no credential, no setting of whoever runs this."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C",
        # Above all that a repository says about protocols; a blank list allows none.
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
