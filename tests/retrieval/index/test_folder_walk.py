"""Walk hostile folders: nothing outside is read, everything that is skipped is counted with its reason."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jumok.errors import ArgumentError, DataError
from jumok.retrieval.files import safe_folder
from jumok.retrieval.files.ignore_rules import is_ignored, parse_ignore_file
from jumok.retrieval.files.safe_folder import SafeFolder, SkipLog, UnusableFileError
from retrieval.index_folders import write_files


def walk(folder: Path, **options: int) -> tuple[list[bytes], dict[str, int]]:
    """Return the sorted paths of a folder's text files, and the counts of what was skipped."""
    skipped = SkipLog()
    with SafeFolder(folder) as opened:
        return sorted(file.path for file in opened.list_text_files(skipped, **options)), skipped.counts


def test_files_are_listed_by_their_endings(tmp_path: Path) -> None:
    names = ["a.txt", "B.MD", "c.rst", "d.po", "e.jsonl", "f.pdf", "README", "sub/g.markdown", "h.csv"]
    write_files(tmp_path, dict.fromkeys([*names, "x.png", "y.py", ".hidden.txt", ".git/config"], "text"))
    files, skipped = walk(tmp_path)
    assert files == sorted(map(os.fsencode, names))
    assert skipped == {"not a text file by its ending": 2, "hidden": 2}


def test_facts_of_a_file(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "five!"})
    with SafeFolder(tmp_path) as folder:
        (file,) = folder.list_text_files(SkipLog())
    status = (tmp_path / "a.txt").stat()
    assert (file.size, file.inode) == (5, status.st_ino)
    assert (file.modified, file.changed) == (status.st_mtime_ns, status.st_ctime_ns)


PATTERNS = (
    *(
        "*.txt",
        "/a",
        "a/",
        "a/b",
        "**/b",
        "a/**",
        "a/**/b",
        "!a/b",
        "!*.txt",
        "*",
        "!*/",
        "foo*",
        "/foo/*",
        "!/foo/b.txt",
    ),
    *(
        "**/foo/**",
        "?",
        "a/*/b",
        "*/b",
        " a",
        "a ",
        "a\\ ",
        "\\#a",
        "\\!a",
        "[ab]",
        "[!a]*",
        "[]a]",
        "[a",
        "b[/x]",
        "/****/**",
    ),
    *("!/foo/b.txt", "b[/x]", "/****/**", "[[:alpha:]].txt", "[a-c]", "é", "\\", "# comment", "*a*b*.txt", "[\\]]"),
)


@pytest.mark.parametrize("seed", range(12))
def test_ignored_files_are_those_of_git(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random folders with .gitignore files on several levels; the real git lists the files that are not ignored."""
    monkeypatch.setattr(safe_folder, "get_ending", lambda name: "")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    generator = random.Random(seed)
    names = ["a", "b", "ab", "a.txt", "b.txt", "foo", "foo.txt", "x y", "é", "[a]", "a]", "!a", "#a", "a "]
    folders = [tmp_path]
    for _ in range(8):
        folder = generator.choice(folders) / generator.choice(names)
        if not folder.exists():
            folder.mkdir()
            folders.append(folder)
    for folder in folders:
        for name in generator.sample(names, 5):
            if not (folder / name).exists():
                (folder / name).write_text("x")
        if generator.random() < 0.6:
            lines = generator.choices(PATTERNS, k=generator.randint(1, 4))
            (folder / ".gitignore").write_text(generator.choice(["\n", "\r\n"]).join(lines))

    command = ["git", "-C", tmp_path, "ls-files", "--others", "--cached", "--exclude-standard", "-z"]
    expected = subprocess.run(command, capture_output=True, check=True).stdout.split(b"\0")
    assert walk(tmp_path)[0] == sorted(path for path in expected if path and not path.endswith(b".gitignore"))


def test_nested_rules_and_negations(tmp_path: Path) -> None:
    texts = {
        ".gitignore": "*.log\n!kept.log\n/build/\nnode_modules/\n",
        "keep/.gitignore": "!important.log\nsecret.txt\n",
        **dict.fromkeys(
            ["a.log", "kept.log", "keep/important.log", "keep/other.log", "keep/secret.txt", "secret.txt"], "x"
        ),
        **dict.fromkeys(["build/a.txt", "keep/build/a.txt", "node_modules/a.txt"], "x"),
    }
    files, skipped = walk(write_files(tmp_path, texts))
    assert files == [b"keep/build/a.txt", b"keep/important.log", b"kept.log", b"secret.txt"]
    assert skipped["ignored by .gitignore"] == 5


def test_hostile_patterns_take_no_time(tmp_path: Path) -> None:
    """Each of these takes hours as an ordinary regular expression."""
    lines = [b"*a" * 60 + b"b", b"**/" + b"*a/**/" * 20 + b"b", b"[a-z]*" * 30 + b"[0-9]", b"(" * 500, b"[z-a]", b"["]
    patterns = parse_ignore_file(b"\n".join(lines))
    assert not is_ignored(b"a" * 255, False, [(0, patterns)])
    assert not is_ignored(b"a/" * 60 + b"a" * 255, False, [(0, patterns)])
    write_files(tmp_path, {"a.txt": "x", ".gitignore": b"*.txt\n" * 100_000})
    assert walk(tmp_path) == ([b"a.txt"], {"a .gitignore larger than 256 KB has no effect": 1, "hidden": 1})


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"secret.txt": "a secret", "rules": "*.txt\n"})
    folder = write_files(tmp_path / "folder", {"a.txt": "x", "sub/b.txt": "x"})
    (folder / "link.txt").symlink_to(outside / "secret.txt")
    (folder / "inside.txt").symlink_to("a.txt")
    (folder / "loop").symlink_to(folder)
    (folder / "out").symlink_to(outside)
    (folder / "nowhere.txt").symlink_to("missing")
    (folder / "sub" / ".gitignore").symlink_to(outside / "rules")
    files, skipped = walk(folder)
    assert files == [b"a.txt", b"sub/b.txt"]
    assert skipped["link"] == 5
    assert skipped["a .gitignore that cannot be read has no effect"] == 1

    with SafeFolder(folder) as opened:
        for path in (b"link.txt", b"out/secret.txt", b"loop/a.txt"):
            with pytest.raises(UnusableFileError, match=r"link|cannot be opened \(Not a directory\)"):
                opened.open_file(path)

    (tmp_path / "alias").symlink_to(folder)  # the folder itself may be given as a link
    assert walk(tmp_path / "alias")[0] == files


def test_a_folder_that_becomes_a_link_during_the_walk(tmp_path: Path) -> None:
    outside = write_files(tmp_path / "outside", {"secret.txt": "a secret"})
    folder = write_files(tmp_path / "folder", {f"sub{number}/a.txt": "x" for number in range(5)})
    skipped = SkipLog()
    with SafeFolder(folder) as opened:
        files = opened.list_text_files(skipped)
        first = next(files).path.split(b"/")[0]
        for sub in folder.iterdir():
            if os.fsencode(sub.name) != first:
                sub.rename(tmp_path / sub.name)
                sub.symlink_to(outside)
        assert b"secret.txt" not in b" ".join(file.path for file in files)
        with pytest.raises(UnusableFileError):
            opened.open_file(b"sub4/secret.txt" if first != b"sub4" else b"sub3/secret.txt")


def test_a_file_that_becomes_a_fifo_or_link_after_the_walk(tmp_path: Path) -> None:
    folder = write_files(tmp_path, {"a.txt": "x", "b.txt": "x"})
    with SafeFolder(folder) as opened:
        assert len(list(opened.list_text_files(SkipLog()))) == 2
        (folder / "a.txt").unlink()
        os.mkfifo(folder / "a.txt")
        (folder / "b.txt").unlink()
        (folder / "b.txt").symlink_to("/etc/passwd")
        with pytest.raises(UnusableFileError, match="not a regular file"):
            opened.open_file(b"a.txt")
        with pytest.raises(UnusableFileError, match="link"):
            opened.open_file(b"b.txt")
        with pytest.raises(UnusableFileError, match="removed"):
            opened.open_file(b"c.txt")


def test_fifos_sockets_and_large_files_are_skipped(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x"})
    os.mkfifo(tmp_path / "fifo.txt")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket.txt"))
        with (tmp_path / "sparse.txt").open("wb") as file:
            file.truncate(10 * 2**30)
        assert walk(tmp_path) == ([b"a.txt"], {"not a regular file": 2, "larger than 64 MB": 1})


def test_names_that_cannot_be_printed(tmp_path: Path) -> None:
    names = [b"new\nline.txt", b"\xff\xfe.txt", b"\x1b[31mred.txt", "\u202eright.txt".encode(), "가.txt".encode()]
    for name in names:
        (tmp_path / os.fsdecode(name)).write_text("x")
        (tmp_path / os.fsdecode(name.replace(b".txt", b".png"))).write_text("x")
    skipped = SkipLog()
    with SafeFolder(tmp_path) as folder:
        files = list(folder.list_text_files(skipped))
        assert sorted(file.path for file in files) == sorted(names)
        for file in files:
            os.close(folder.open_file(file.path))
    printed = {entry.path for entry in skipped.first}
    assert printed == {"new\\nline.png", "\\xff\\xfe.png", "\\x1b[31mred.png", "\\u202eright.png", "가.png"}


def test_very_deep_folders(tmp_path: Path) -> None:
    """Deeper than Python's recursion, than the longest path of the system, and than the files that may be open."""
    (tmp_path / "a.txt").write_text("x")
    parent = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=parent)
        child = os.open("d", os.O_RDONLY, dir_fd=parent)
        os.close(parent)
        parent = child
    os.close(parent)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 210, limits[1]))
    try:
        assert walk(tmp_path) == ([b"a.txt"], {"more than 100 folders deep": 1})
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # shutil.rmtree would recurse


def test_descriptors_are_closed(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{number}/{number}/a.txt": "x" for number in range(20)})
    before = len(os.listdir("/dev/fd"))
    walk(tmp_path)
    with SafeFolder(tmp_path) as folder:
        next(folder.list_text_files(SkipLog()))  # a walk that is not finished
    assert len(os.listdir("/dev/fd")) == before


@contextlib.contextmanager
def without_privileges() -> Iterator[None]:
    """Root may read everything: be another user for a while."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_unreadable_files_and_folders(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x", "b.txt": "x", "sub/c.txt": "x"})
    tmp_path.chmod(0o755)
    (tmp_path / "b.txt").chmod(0)
    (tmp_path / "sub").chmod(0)
    skipped = SkipLog()
    try:
        with SafeFolder(tmp_path) as folder, without_privileges():
            assert sorted(file.path for file in folder.list_text_files(skipped)) == [b"a.txt", b"b.txt"]
            os.close(folder.open_file(b"a.txt"))
            with pytest.raises(UnusableFileError, match=r"cannot be opened \(Permission denied\)"):
                folder.open_file(b"b.txt")
    finally:
        (tmp_path / "sub").chmod(0o700)
    assert skipped.counts == {"cannot be opened (Permission denied)": 1}
    assert [entry.path for entry in skipped.first] == ["sub"]


def test_limits_of_files_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(tmp_path, {f"{number}.txt": "xx" for number in range(7)})
    assert len(walk(tmp_path, max_files=7)[0]) == 7
    with pytest.raises(DataError, match=r"contains more than 6 text files; .*--max-files"):
        walk(tmp_path, max_files=6)
    monkeypatch.setattr(safe_folder, "MAX_TOTAL_BYTES", 13)
    with pytest.raises(DataError, match="GB of text files"):
        walk(tmp_path)


def test_folders_that_are_none(tmp_path: Path) -> None:
    write_files(tmp_path, {"a.txt": "x"})
    (tmp_path / "loop").symlink_to("loop")
    for name, message in {
        "missing": "there is no folder .*missing",
        "a.txt": "is a file; give the folder",
        "a.txt/x": "cannot be opened: Not a directory",
        "loop": "cannot be opened",
        "x" * 5000: "cannot be opened: File name too long",
        "a\0b": "cannot be opened",
    }.items():
        with pytest.raises(ArgumentError, match=message):
            SafeFolder(tmp_path / name)


def test_files_that_appear_and_disappear_during_the_walk(tmp_path: Path) -> None:
    write_files(tmp_path, {f"{number}/{part}.txt": "x" for number in range(30) for part in range(10)})
    stop = threading.Event()

    def disturb() -> None:
        while not stop.is_set():
            for number in range(0, 30, 3):
                (tmp_path / str(number)).rename(tmp_path / f"moved{number}")
                (tmp_path / f"moved{number}").rename(tmp_path / str(number))

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        for _ in range(8):
            files, _ = walk(tmp_path)
            assert {path for path in files if int(path.split(b"/")[0].removeprefix(b"moved")) % 3} == {
                f"{number}/{part}.txt".encode() for number in range(30) if number % 3 for part in range(10)
            }
    finally:
        stop.set()
        thread.join()
