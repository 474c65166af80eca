"""The file tools: only regular files below the workspace, and bounded answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from covey.actors.tools.base import ToolError
from covey.actors.tools.files import LINE_CHARS, READ_CHARS, WRITE_BYTES, ListFiles, ReadFile, WriteFile

pytestmark = pytest.mark.timeout(20)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "outside.txt").write_text("secret")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def read(workspace: Path, path: str, **more: Any) -> str:
    return await ReadFile(workspace).run("c", json.dumps({"path": path, **more}))


async def write(workspace: Path, path: str, content: str) -> str:
    return await WriteFile(workspace).run("c", json.dumps({"path": path, "content": content}))


async def listing(workspace: Path, path: str = ".") -> list[str]:
    return (await ListFiles(workspace).run("c", json.dumps({"path": path}))).splitlines()


# --- reading ---------------------------------------------------------------------------------------------------------


async def test_a_file_is_read_whole(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\ntwo\n")

    assert await read(workspace, "a.txt") == "one\ntwo\n"
    assert await read(workspace, str(workspace / "a.txt")) == "one\ntwo\n"


async def test_offset_and_limit_select_lines_and_say_how_to_go_on(workspace: Path) -> None:
    (workspace / "a.txt").write_text("".join(f"{n}\n" for n in range(1, 11)))

    assert await read(workspace, "a.txt", offset=3, limit=2) == "3\n4\n\n[more follows; go on with offset=5]"
    assert await read(workspace, "a.txt", offset=9, limit=2) == "9\n10\n"


async def test_an_offset_behind_the_end_is_an_error_that_names_the_length(workspace: Path) -> None:
    (workspace / "a.txt").write_text("one\n")

    with pytest.raises(ToolError, match=r"a\.txt has 1 lines; offset 5"):
        await read(workspace, "a.txt", offset=5)


async def test_an_empty_file_says_so(workspace: Path) -> None:
    (workspace / "a.txt").touch()

    assert await read(workspace, "a.txt") == "[the file is empty]"


async def test_a_huge_file_is_answered_in_bounds(workspace: Path) -> None:
    (workspace / "a.txt").write_text(("x" * 999 + "\n") * 1000)

    text = await read(workspace, "a.txt")

    assert len(text) < READ_CHARS + 2 * LINE_CHARS
    assert "go on with offset=65]" in text


async def test_a_long_line_is_cut_with_a_note(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x" * 5000)

    assert "[3000 more characters in this line]" in await read(workspace, "a.txt")


async def test_a_binary_file_is_named_as_such(workspace: Path) -> None:
    (workspace / "a.bin").write_bytes(b"\x7fELF\0\0")

    with pytest.raises(ToolError, match="binary file of 6 bytes"):
        await read(workspace, "a.bin")


async def test_bytes_that_are_no_text_are_replaced(workspace: Path) -> None:
    (workspace / "a.txt").write_bytes(b"caf\xe9\n")

    assert await read(workspace, "a.txt") == "caf�\n"


@pytest.mark.parametrize("arguments", ['{"path": 3}', "{}", '{"path": "a"', "[]", '{"path": "a", "offset": 0}'])
async def test_wrong_arguments_are_an_error_for_the_model(workspace: Path, arguments: str) -> None:
    with pytest.raises(ToolError):
        await ReadFile(workspace).run("c", arguments)


# --- staying inside --------------------------------------------------------------------------------------------------

ESCAPES = [
    "../outside.txt",
    "/etc/passwd",
    "link.txt",
    "linked/outside.txt",
    "linked/../outside.txt",
    "a/../../outside.txt",
]


@pytest.mark.parametrize("path", ESCAPES)
async def test_no_path_leads_out_of_the_workspace(workspace: Path, path: str) -> None:
    (workspace / "link.txt").symlink_to("../outside.txt")
    (workspace / "linked").symlink_to("..")

    with pytest.raises(ToolError, match="outside the workspace"):
        await read(workspace, path)
    with pytest.raises(ToolError, match="outside the workspace"):
        await write(workspace, path, "x")
    assert (workspace.parent / "outside.txt").read_text() == "secret"


async def test_a_link_inside_the_workspace_is_followed(workspace: Path) -> None:
    (workspace / "real").mkdir()
    (workspace / "link").symlink_to("real")

    await write(workspace, "link/a.txt", "x")

    assert (workspace / "real" / "a.txt").read_text() == "x"


async def test_a_directory_replaced_by_a_link_after_the_check_is_not_followed(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "dir").mkdir()
    (workspace / "dir" / "outside.txt").write_text("harmless")
    resolved = os.path.realpath

    def realpath_then_swap(path: Any, **options: Any) -> Any:
        answer = resolved(path, **options)
        if str(path).endswith("dir/outside.txt"):
            (workspace / "dir").rename(workspace / "was")
            (workspace / "dir").symlink_to("..")
        return answer

    monkeypatch.setattr(os.path, "realpath", realpath_then_swap)

    with pytest.raises(ToolError, match=r"dir/outside\.txt"):
        await read(workspace, "dir/outside.txt")


@pytest.mark.parametrize("path", ["", ".", "sub", "no/such", "a.txt/below", "nul\0"])
async def test_what_is_no_file_is_refused(workspace: Path, path: str) -> None:
    (workspace / "sub").mkdir()
    (workspace / "a.txt").touch()

    with pytest.raises(ToolError):
        await read(workspace, path)


async def test_a_fifo_hangs_nobody(workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")

    with pytest.raises(ToolError, match="not a regular file"):
        await read(workspace, "fifo")
    with pytest.raises(ToolError, match="not a regular file"):
        await write(workspace, "fifo", "x")


async def test_no_descriptor_is_left_open(workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "a.txt").write_text("x")
    await read(workspace, "a.txt")
    before = len(os.listdir("/proc/self/fd"))

    for path in ("a.txt", "fifo", "no/such", "../outside.txt", "."):
        for tool, arguments in ((read, ()), (write, ("x",)), (listing, ())):
            with contextlib.suppress(ToolError):
                await tool(workspace, path, *arguments)

    assert len(os.listdir("/proc/self/fd")) == before


# --- writing ---------------------------------------------------------------------------------------------------------


async def test_writing_makes_the_directories_and_leaves_no_draft(workspace: Path) -> None:
    said = await write(workspace, "a/b/c.txt", "né")

    assert said == "wrote 3 bytes to a/b/c.txt"
    assert (workspace / "a/b/c.txt").read_text() == "né"
    assert os.listdir(workspace / "a/b") == ["c.txt"]


async def test_writing_keeps_the_mode_of_the_file(workspace: Path) -> None:
    (workspace / "run.sh").touch()
    (workspace / "run.sh").chmod(0o750)

    await write(workspace, "run.sh", "echo")

    assert (workspace / "run.sh").stat().st_mode & 0o777 == 0o750


async def test_too_much_content_is_refused_and_the_file_stays(workspace: Path) -> None:
    (workspace / "a.txt").write_text("old")

    with pytest.raises(ToolError, match="more than write_file takes"):
        await write(workspace, "a.txt", "x" * (WRITE_BYTES + 1))
    assert (workspace / "a.txt").read_text() == "old"


# --- listing ---------------------------------------------------------------------------------------------------------


async def test_a_listing_is_sorted_and_tells_kinds(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "a.txt").write_text("abc")
    (workspace / "z").symlink_to("..")

    assert await listing(workspace) == ["a.txt (3 bytes)", "sub/", "z (link)"]
    assert await listing(workspace, "sub") == ["[the directory is empty]"]


async def test_a_listing_is_bounded(workspace: Path) -> None:
    for n in range(1005):
        (workspace / f"{n:04}").touch()

    assert (await listing(workspace))[-1] == "[5 more entries]"


async def test_file_work_uses_the_threads_of_the_loop_and_no_others(workspace: Path) -> None:
    (workspace / "a.txt").write_text("x")
    before = threading.active_count()
    await asyncio.gather(*(read(workspace, "a.txt") for _ in range(50)))

    assert threading.active_count() - before <= 2
