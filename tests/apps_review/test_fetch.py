"""The first stage reads the allowed files of a repository, and runs none of its code."""

from __future__ import annotations

import os
import re
import select
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import ArtifactNotFound, FakeClock, Holdfast, State
from holdfast.engine.context import Context
from holdfast_review.enums import ReviewProgress
from holdfast_review.fetch import Fetcher
from holdfast_review.git import Range, Repositories, _environment
from holdfast_review.model import Review, Source
from holdfast_review.patch import Limits, parse_patch
from holdfast_review.refusal import ChangeMissing, ChangeTooLarge, GitFailed, PathRefused
from tests.apps_review.office import commit, git, make_repository
from tests.story import ORG, OTHER_ORG

AWS = "AKIAIOSFODNN7EXAMPLE"


@pytest.fixture
def allowed(tmp_path: Path) -> Path:
    place = tmp_path / "allowed"
    place.mkdir()
    return place


@pytest.fixture
def repo(allowed: Path) -> Path:
    place = allowed / "repo"
    make_repository(place)
    return place


def diff_of(allowed: Path, repo: Path, head: str = "HEAD", base: str = "") -> bytes:
    found = Repositories((allowed,)).open(str(repo))
    return found.read_diff(found.find_range(head, base), max_bytes=1_000_000)


# -- git


def test_a_commit_is_compared_with_its_parent_and_a_range_with_its_base(
    allowed: Path, repo: Path
) -> None:
    first = git(repo, "rev-parse", "HEAD")
    commit(repo, cart="one\n2\n")
    last = commit(repo, other="x\n")

    assert [file.path for file in parse_patch(diff_of(allowed, repo, last)).files] == ["other"]
    ranged = parse_patch(diff_of(allowed, repo, "main", first))
    assert [file.path for file in ranged.files] == ["cart", "other"]
    assert [file.path for file in parse_patch(diff_of(allowed, repo, first)).files] == ["cart"]


def test_a_range_is_what_the_head_changed_since_it_parted_from_the_base(
    allowed: Path, repo: Path
) -> None:
    parted = git(repo, "rev-parse", "HEAD")
    git(repo, "checkout", "-q", "-b", "feature")
    feature = commit(repo, feature="x\n")
    git(repo, "checkout", "-q", "main")
    main = commit(repo, cart="changed on main\n")

    found = Repositories((allowed,)).open(str(repo)).find_range("feature", "main")
    files = parse_patch(diff_of(allowed, repo, "feature", "main")).files
    git(repo, "merge", "-q", "feature", "-m", "merged")

    assert found == Range(base=main, head=feature, merge_base=parted)
    assert [file.path for file in files] == ["feature"]
    assert diff_of(allowed, repo, "feature", "main") == b""
    # The merge commit is compared with the branch that it was made on.
    assert [file.path for file in parse_patch(diff_of(allowed, repo)).files] == ["feature"]


def test_a_base_without_a_common_history_is_refused(allowed: Path, repo: Path) -> None:
    git(repo, "checkout", "-q", "--orphan", "other")
    commit(repo, other="x\n")

    with pytest.raises(ChangeMissing) as refused:
        diff_of(allowed, repo, "other", "main")

    assert refused.value.context == {"what": "base", "problem": "unrelated"}


def test_the_last_commit_of_a_shallow_clone_is_refused_and_not_read_as_everything(
    allowed: Path, repo: Path
) -> None:
    commit(repo, cart="one\n")
    last = commit(repo, cart="two\n")
    shallow = allowed / "shallow"
    git(allowed, "clone", "-q", "--depth=2", f"file://{repo}", str(shallow))

    assert diff_of(allowed, shallow) == diff_of(allowed, repo)
    with pytest.raises(ChangeMissing) as refused:
        diff_of(allowed, shallow, "HEAD~1")
    assert refused.value.context == {"what": "head", "problem": "shallow"}

    git(repo, "checkout", "-q", "-b", "side", "HEAD~2")
    side = commit(repo, side="x\n")
    git(shallow, "fetch", "-q", "--depth=1", "origin", side)
    with pytest.raises(ChangeMissing) as refused:
        diff_of(allowed, shallow, side, last)
    assert refused.value.context == {"what": "base", "problem": "shallow"}


def test_a_bare_repository_and_a_linked_work_tree_are_read(allowed: Path, repo: Path) -> None:
    git(repo, "clone", "-q", "--bare", str(repo), str(allowed / "bare.git"))
    git(repo, "worktree", "add", "-q", str(allowed / "linked"), "HEAD")

    expected = diff_of(allowed, repo)
    assert diff_of(allowed, allowed / "bare.git") == expected
    assert diff_of(allowed, allowed / "linked") == expected


def test_binary_and_broken_texts_are_distinguished(allowed: Path, repo: Path) -> None:
    commit(repo, image=b"\x89PNG\0\0\1", latin=b"caf\xe9\n")

    image, latin = parse_patch(diff_of(allowed, repo)).files

    assert (image.is_binary, image.hunks) == (True, ())
    assert (latin.is_binary, latin.is_lossy) == (False, True)


@pytest.mark.parametrize(
    "revision",
    ["nowhere", "0" * 40, "--output=/tmp/x", "-p", "HEAD..main", "HEAD:cart", ":/change", "@{1}",
     "a b", "HEAD\n", "", "x" * 300],
)  # fmt: skip
def test_an_unknown_revision_is_refused(allowed: Path, repo: Path, revision: str) -> None:
    with pytest.raises(ChangeMissing):
        diff_of(allowed, repo, revision)
    if revision:
        with pytest.raises(ChangeMissing):
            diff_of(allowed, repo, "HEAD", revision)


def test_what_is_no_repository_is_refused(allowed: Path, repo: Path) -> None:
    (allowed / "empty").mkdir()

    for place in (allowed / "empty", repo / "cart"):
        with pytest.raises(ChangeMissing):
            diff_of(allowed, place)


def test_a_folder_within_a_repository_is_none(allowed: Path, repo: Path) -> None:
    (repo / "inner").mkdir()

    with pytest.raises(ChangeMissing):
        diff_of(allowed, repo / "inner")


# -- the allow-list


def test_a_repository_outside_is_refused_and_so_is_one_that_is_not_there(
    allowed: Path, repo: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "allowed-not"
    repo.rename(outside)

    for place in (outside, allowed / ".." / "allowed-not", allowed / "nothing", Path("repo")):
        with pytest.raises(PathRefused):
            diff_of(allowed, place)
    with pytest.raises(PathRefused):
        Repositories(()).open(str(outside))
    with pytest.raises(PathRefused):
        Repositories((allowed,)).open("/x\0y")


def test_a_link_that_leads_outside_is_refused(allowed: Path, repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    repo.rename(outside)
    repo.symlink_to(outside)

    with pytest.raises(PathRefused):
        diff_of(allowed, repo)
    assert diff_of(tmp_path, repo)


@pytest.mark.parametrize("inner", [".git", ".git/objects", ".git/objects/pack"])
def test_a_link_within_a_repository_that_leads_outside_is_refused(
    allowed: Path, repo: Path, tmp_path: Path, inner: str
) -> None:
    (repo / inner).rename(tmp_path / "elsewhere")
    (repo / inner).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PathRefused):
        diff_of(allowed, repo)


def test_an_object_behind_a_link_is_read_only_if_it_lies_inside(
    allowed: Path, repo: Path, tmp_path: Path
) -> None:
    head = git(repo, "rev-parse", "HEAD")
    place = repo / ".git" / "objects" / head[:2] / head[2:]
    for folder, may_be_read in ((allowed, True), (tmp_path, False)):
        moved = folder / "moved"
        place.rename(moved)
        place.symlink_to(moved)
        if may_be_read:
            assert diff_of(allowed, repo)
        else:
            with pytest.raises(PathRefused):
                diff_of(allowed, repo)
        place.unlink()
        moved.rename(place)


def test_a_repository_that_points_outside_is_refused(
    allowed: Path, repo: Path, tmp_path: Path
) -> None:
    (repo / ".git").rename(tmp_path / "elsewhere")
    (repo / ".git").write_text(f"gitdir: {tmp_path}/elsewhere\n")

    with pytest.raises(PathRefused):
        diff_of(allowed, repo)


def test_objects_are_not_borrowed_from_outside(allowed: Path, repo: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    repo.rename(outside)
    git(tmp_path, "clone", "-q", "--shared", str(outside), str(repo))

    with pytest.raises(PathRefused):
        diff_of(allowed, repo)
    assert diff_of(tmp_path, repo)


@pytest.mark.parametrize("name", ["commondir", "objects/info/alternates"])
def test_a_pipe_where_a_file_belongs_is_refused_and_not_waited_for(
    allowed: Path, repo: Path, name: str
) -> None:
    os.mkfifo(repo / ".git" / name)

    with pytest.raises(PathRefused):
        diff_of(allowed, repo)


# -- nothing of the repository runs


def test_no_program_that_a_repository_names_is_run(
    allowed: Path, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, proof = tmp_path / "program", tmp_path / "it-ran"
    program.write_text(f"#!/bin/sh\ntouch {proof}\ncat\n")
    program.chmod(0o755)
    (repo / ".gitattributes").write_text("* diff=mine filter=mine\n")
    (repo / ".git" / "info" / "attributes").write_text("* diff=mine filter=mine\n")
    commit(repo, cart="changed\n")
    for name in (
        "diff.external", "diff.mine.command", "diff.mine.textconv", "filter.mine.clean",
        "filter.mine.smudge", "core.pager", "core.fsmonitor", "core.sshCommand", "pager.diff-tree",
        "core.alternateRefsCommand",
    ):  # fmt: skip
        git(repo, "config", name, str(program))
    for hook in ("post-index-change", "post-checkout", "reference-transaction"):
        path = repo / ".git" / "hooks" / hook
        path.parent.mkdir(exist_ok=True)
        path.write_text(program.read_text())
        path.chmod(0o755)
    proof.unlink(missing_ok=True)
    monkeypatch.setenv("GIT_EXTERNAL_DIFF", str(program))
    monkeypatch.setenv("GIT_DIR", str(tmp_path))

    files = parse_patch(diff_of(allowed, repo)).files

    assert {file.path for file in files} == {".gitattributes", "cart"}
    assert not proof.exists()


@pytest.mark.parametrize("knows", ["GIT_NO_LAZY_FETCH", "GIT_ALLOW_PROTOCOL"])
def test_what_a_repository_lacks_is_not_fetched_by_a_program_of_its_choice(
    allowed: Path, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, knows: str
) -> None:
    program, proof = tmp_path / "program", tmp_path / "it-ran"
    program.write_text(f"#!/bin/sh\ntouch {proof}\n")
    program.chmod(0o755)
    commit(repo, cart="changed\n")
    lacks = git(repo, "rev-parse", "HEAD:cart")
    (repo / ".git" / "objects" / lacks[:2] / lacks[2:]).unlink()
    for name, value in {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{program}",
        "protocol.ext.allow": "always",
    }.items():
        git(repo, "config", name, value)
    # Older versions of git know one of the two; each is enough.
    kept = {name: value for name, value in _environment(repo).items() if "LAZY" not in name}
    kept.pop("GIT_ALLOW_PROTOCOL")
    kept[knows] = _environment(repo)[knows]
    monkeypatch.setattr("holdfast_review.git._environment", lambda git: kept)

    with pytest.raises(GitFailed):
        diff_of(allowed, repo)
    assert not proof.exists()


def test_a_change_does_not_hide_its_files_by_attributes(allowed: Path, repo: Path) -> None:
    commit(repo, **{".gitattributes": "* -diff\n", "cart": "hidden\n"})
    git(repo, "clone", "-q", "--bare", str(repo), str(allowed / "bare.git"))

    for place in (repo, allowed / "bare.git"):
        files = parse_patch(diff_of(allowed, place)).files
        assert [(file.path, file.is_binary) for file in files] == [
            (".gitattributes", False), ("cart", False),
        ]  # fmt: skip


def fake_git(place: Path, script: str) -> str:
    path = place / "git"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_git_sees_nothing_of_our_environment(
    allowed: Path, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "hunter2")
    script = f"env > {tmp_path}/seen; echo {'a' * 40}"
    found = Repositories((allowed,), fake_git(tmp_path, script)).open(str(repo))

    found.find_range("HEAD")

    assert "hunter2" not in (tmp_path / "seen").read_text()


@pytest.mark.req("E-17")
def test_a_git_that_hangs_is_ended_with_its_children(
    allowed: Path, repo: Path, tmp_path: Path
) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/child; wait"
    found = Repositories((allowed,), fake_git(tmp_path, script), seconds=0.5).open(str(repo))

    with pytest.raises(GitFailed) as failed:
        found.find_range("HEAD")

    assert failed.value.context == {"problem": "timeout"}
    assert is_gone(int((tmp_path / "child").read_text()))


def is_gone(pid: int) -> bool:
    """Whether a process has ended, or does within the time that a killed one may take."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], 30)[0])
    finally:
        os.close(handle)


def test_a_diff_without_end_is_cut_off_and_its_git_ended(
    allowed: Path, repo: Path, tmp_path: Path
) -> None:
    script = f'case "$*" in *diff-tree*) yes;; *) echo {"a" * 40};; esac'
    found = Repositories((allowed,), fake_git(tmp_path, script)).open(str(repo))

    with pytest.raises(ChangeTooLarge):
        found.read_diff(found.find_range("HEAD"), max_bytes=1_000_000)


# -- the stage


def review_of(source: Source) -> Review:
    return Review(
        "r",
        ORG,
        "cl-1",
        1,
        "j",
        State.PROCESSING,
        ReviewProgress.IN_PROGRESS,
        source,
        "k",
        FakeClock().now(),
    )


def fetch(hf: Holdfast, fetcher: Fetcher, source: Source) -> Any:
    """The result of a job of one stage."""

    @hf.job("change.fetch", max_attempts=1)
    def run(job: Context, payload: dict[str, Any]) -> Any:
        return dict(fetcher(job, review_of(source)))

    job = hf.enqueue("change.fetch", {}, org_id=ORG, actor="user:42")
    hf.worker().run_once()
    return hf.get(job.id, org_id=ORG)


def test_a_change_is_stored_without_its_secrets_with_a_checksum_and_an_end(
    hf: Holdfast, allowed: Path, repo: Path
) -> None:
    head = commit(repo, cart=f'one\nkey = "{AWS}"\n')

    job = fetch(hf, Fetcher(Repositories((allowed,))), Source.git(str(repo), "main"))

    assert job.state is State.COMPLETED
    assert (job.result["head"], job.result["files"]) == (head, 1)
    parent = git(repo, "rev-parse", "HEAD~1")
    assert (job.result["base"], job.result["merge_base"]) == (parent, parent)
    (stored,) = hf.artifacts.list(ORG, job_id=job.id)
    assert (stored.id, stored.sha256) == (job.result["artifact_id"], job.result["sha256"])
    assert stored.expires_at is not None
    with hf.artifacts.open(stored.id, org_id=ORG) as file:
        text = file.read()
    assert AWS.encode() not in text
    assert b'+key = "[secret]"' in text
    with pytest.raises(ArtifactNotFound):
        hf.artifacts.open(stored.id, org_id=OTHER_ORG)


def error_of(job: Any) -> str:
    """The class of its last error, without the safe fields after it."""
    return re.split(r"[^A-Z_]", job.last_error)[0]


def posted(hf: Holdfast, patch: bytes, org_id: str = ORG) -> Source:
    stored = hf.artifacts.put(patch, org_id=org_id, name="p.diff", owner="user:42")
    return Source.patch(stored.id, stored.sha256 or "")


PATCH = b"--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"


def test_a_posted_patch_is_fetched_like_a_commit(hf: Holdfast) -> None:
    job = fetch(hf, Fetcher(), posted(hf, PATCH))

    assert (job.state, job.result["files"], job.result["head"]) == (State.COMPLETED, 1, "")


@pytest.mark.parametrize(
    ("patch", "error_class"),
    [(b"hello\n", "PATCH_INVALID"), (PATCH * 200, "CHANGE_TOO_LARGE")],
)
def test_a_bad_patch_is_dead_at_once_and_nothing_is_stored(
    hf: Holdfast, patch: bytes, error_class: str
) -> None:
    job = fetch(hf, Fetcher(limits=Limits(max_bytes=1_000)), posted(hf, patch))

    assert (job.state, error_of(job)) == (State.FAILED, error_class)
    assert hf.artifacts.list(ORG, job_id=job.id) == []


def test_a_patch_of_another_tenant_is_not_there(hf: Holdfast) -> None:
    job = fetch(hf, Fetcher(), posted(hf, PATCH, OTHER_ORG))

    assert (job.state, error_of(job)) == (State.FAILED, "CHANGE_MISSING")


def test_a_patch_that_is_not_the_one_that_was_submitted_is_refused(hf: Holdfast) -> None:
    source = posted(hf, PATCH)

    job = fetch(hf, Fetcher(), Source.patch(source.artifact_id, "0" * 64))

    assert (job.state, error_of(job)) == (State.FAILED, "CHECKSUM_MISMATCH")


def test_without_allowed_folders_no_repository_is_read(hf: Holdfast, repo: Path) -> None:
    job = fetch(hf, Fetcher(), Source.git(str(repo), "main"))

    assert (job.state, error_of(job)) == (State.FAILED, "PATH_REFUSED")
