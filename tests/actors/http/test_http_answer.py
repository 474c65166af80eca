"""Answers as bytes: whatever a server sends, and however it is cut, it is read the same."""

from __future__ import annotations

from itertools import pairwise

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from covey.actors.http.answer import DRY_BYTES, HEAD_BYTES, Answer

OK = b"HTTP/1.1 200 OK\r\n"

CORPUS: dict[str, bytes] = {
    "length": OK + b"Content-Length: 5\r\n\r\nhello",
    "no body": OK + b"content-length: 0\r\n\r\n",
    "chunks": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    "chunk extension": OK + b"transfer-encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    "trailers": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx-sum: 1\r\nx-more: 2\r\n\r\n",
    "until close": OK + b"\r\nhello",
    "old": b"HTTP/1.0 200 OK\r\n\r\nhello",
    "says close": OK + b"connection: close\r\ncontent-length: 2\r\n\r\nok",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"
    + OK
    + b"content-length: 2\r\n\r\nok",
    "none": b"HTTP/1.1 204 No Content\r\n\r\n",
    "unchanged": b"HTTP/1.1 304 Not Modified\r\ncontent-length: 17\r\n\r\n",
    "no reason": b"HTTP/1.1 429 \r\nretry-after: 3\r\ncontent-length: 2\r\n\r\n{}",
    "keep-alive": OK + b"keep-alive: timeout=2, max=5\r\ncontent-length: 2\r\n\r\nok",
    "upgrade offered": OK + b"upgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 2\r\n\r\nok",
    "same header twice": OK + b"a: 1\r\na: 2\r\ncontent-length: 2\r\n\r\nok",
    "more behind it": OK + b"content-length: 2\r\n\r\nok" + OK + b"content-length: 2\r\n\r\nno",
    "empty behind it": OK + b"content-length: 2\r\n\r\nok" + OK + b"content-length: 0\r\n\r\n",
    "garbage behind it": OK + b"content-length: 2\r\n\r\nok!!!",
    "switched": b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    "cut head": OK + b"content-le",
    "cut length": OK + b"content-length: 9\r\n\r\nhello",
    "cut chunks": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "cut in a chunk": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhel",
    "bad chunk": OK + b"transfer-encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n",
    "not http": b"SSH-2.0-OpenSSH_9.6\r\n",
    "two lengths": OK + b"content-length: 2\r\ncontent-length: 3\r\n\r\nok",
    "nothing": b"",
    "long head": OK + b"x: " + b"y" * (HEAD_BYTES + 1) + b"\r\ncontent-length: 0\r\n\r\n",
    "long trailer": OK + b"transfer-encoding: chunked\r\n\r\n0\r\nx: " + b"y" * (HEAD_BYTES + 1) + b"\r\n\r\n",
}


def read(raw: bytes, cuts: tuple[int, ...] = (), *, is_for_head: bool = False) -> tuple[object, ...]:
    """All that can be seen of an answer that comes in these slices, and then the end of the connection."""
    answer = Answer(is_for_head=is_for_head)
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    body = b""
    for start, stop in pairwise(edges):
        if start < stop and answer.error is None and not answer.is_complete:
            answer.feed(raw[start:stop])
            body += answer.take()
    answer.end()
    body += answer.take()
    error = type(answer.error) if answer.error else None
    return answer.status, answer.reason, answer.headers, body, answer.is_complete, answer.keep_alive_s, error


@pytest.mark.parametrize("name", CORPUS)
@given(cuts=st.lists(st.integers(0, 2_000), max_size=12).map(tuple))
@settings(max_examples=60, deadline=None)
def test_an_answer_reads_the_same_however_it_is_cut(name: str, cuts: tuple[int, ...]) -> None:
    raw = CORPUS[name]

    assert read(raw, cuts) == read(raw)


@pytest.mark.parametrize("name", [name for name, raw in CORPUS.items() if len(raw) < 1_000])
def test_an_answer_reads_the_same_byte_by_byte(name: str) -> None:
    raw = CORPUS[name]

    assert read(raw, tuple(range(len(raw)))) == read(raw)


@given(
    raw=st.binary(max_size=300), begins_well=st.booleans(), cuts=st.lists(st.integers(0, 300), max_size=6).map(tuple)
)
@settings(max_examples=300, deadline=None)
def test_any_bytes_end_in_an_answer_or_an_error(raw: bytes, begins_well: bool, cuts: tuple[int, ...]) -> None:
    raw = (OK + b"transfer-encoding: chunked\r\n\r\n" if begins_well else b"") + raw

    seen = read(raw, cuts)

    assert seen == read(raw)
    assert (seen[-3] is True) != (seen[-1] is not None)


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("length", b"hello"),
        ("chunks", b"hello world"),
        ("chunk extension", b"hello"),
        ("trailers", b"hello"),
        ("until close", b"hello"),
        ("old", b"hello"),
        ("interim", b"ok"),
        ("none", b""),
        ("unchanged", b""),
        ("upgrade offered", b"ok"),
        ("more behind it", b"ok"),
    ],
)
def test_the_body_is_what_the_framing_says(name: str, body: bytes) -> None:
    _, _, _, got, is_complete, _, error = read(CORPUS[name])

    assert (got, is_complete, error) == (body, True, None)


@pytest.mark.parametrize(
    "name",
    [
        "switched", "cut head", "cut length", "cut chunks", "cut in a chunk", "bad chunk", "not http", "two lengths",
        "nothing", "long head", "long trailer",
    ],
)  # fmt: skip
def test_what_is_no_whole_answer_is_the_server_s_fault(name: str) -> None:
    assert read(CORPUS[name])[-1] is httpx.RemoteProtocolError


@pytest.mark.parametrize(
    ("name", "keeps"),
    [
        ("length", True),
        ("chunks", True),
        ("trailers", True),
        ("none", True),
        ("unchanged", True),
        ("interim", True),
        ("until close", False),
        ("old", False),
        ("says close", False),
    ],
)
def test_the_connection_is_kept_where_the_server_keeps_it(name: str, keeps: bool) -> None:
    answer = Answer()
    answer.feed(CORPUS[name])
    answer.end()

    assert answer.keeps_connection is keeps
    assert not answer.has_stray


@pytest.mark.parametrize("name", ["more behind it", "empty behind it", "garbage behind it"])
def test_bytes_behind_the_end_are_noticed(name: str) -> None:
    answer = Answer()
    answer.feed(CORPUS[name])

    assert answer.is_complete
    assert answer.error is None
    assert answer.has_stray


def test_an_answer_to_head_ends_with_its_head() -> None:
    answer = Answer(is_for_head=True)
    answer.feed(OK + b"content-length: 500\r\n\r\n")

    assert answer.is_complete
    assert answer.keeps_connection


def test_headers_come_as_they_were_sent() -> None:
    answer = Answer()
    answer.feed(OK + b"X-One: a b \r\nx-one:\tc\r\nContent-Length: 0\r\n\r\n")

    assert answer.headers == [(b"X-One", b"a b"), (b"x-one", b"c"), (b"Content-Length", b"0")]


def test_an_interim_answer_leaves_nothing_behind() -> None:
    seen = read(CORPUS["interim"])

    assert seen[:3] == (200, b"OK", [(b"content-length", b"2")])


def test_a_line_without_end_is_given_up() -> None:
    answer = Answer()
    fed = 0
    while answer.error is None:
        answer.feed(OK + b"x: " if not fed else b"y" * 8_192)
        fed += 8_192

    assert fed <= DRY_BYTES + 2 * 8_192


def test_interim_answers_without_end_are_given_up() -> None:
    interim = b"HTTP/1.1 102 Processing\r\nx: y\r\n\r\n"
    answer = Answer()
    fed = 0
    while answer.error is None:
        answer.feed(interim)
        fed += len(interim)

    assert fed <= DRY_BYTES + len(interim)


def test_what_was_good_before_a_violation_is_given_out() -> None:
    seen = read(CORPUS["bad chunk"])

    assert seen[3] == b"hello"


def test_a_reset_is_the_cause_of_its_error() -> None:
    answer = Answer()
    reset = ConnectionResetError(104, "reset")
    answer.feed(OK + b"\r\nhello")
    answer.end(reset)

    assert isinstance(answer.error, httpx.ReadError)
    assert answer.error.__cause__ is reset
