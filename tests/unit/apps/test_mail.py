"""Mailboxes without duplicates: the first copy stays, and no message is ever lost."""

from __future__ import annotations

import mailbox
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bloomery.apps import deduplicate_mail, message_key
from bloomery.apps.mailboxes import Maildir
from bloomery.errors import InvalidParameter
from waiting import wait_until

_ODD = (
    b"Subject: =?utf-8?b?\xff\xfe?= \xe9\r\nReceived: by \x00\nMessage-ID:\r\n  <odd@x>\r\n"
    b"From: \xc3(\nX-Broken\n\nbody \xff\n"
)


def mail(number: int, ident: bool = True, received: str = "one") -> bytes:
    """A message as it came by one way or another."""
    head = f"Received: by {received}\nFrom: a@example.org\nSubject: report {number}\n"
    head += f"Message-ID: <{number}@example.org>\n" if ident else ""
    return f"{head}\nFrom here on: {number} bars.\n".encode()


def maildir(path: Path, messages: list[bytes]) -> Path:
    """A Maildir with these messages, half of them read."""
    for name in ("cur", "new", "tmp"):
        (path / name).mkdir(parents=True)
    for number, data in enumerate(messages):
        name = f"cur/{number:05}.x:2,S" if number % 2 else f"new/{number:05}.x"
        (path / name).write_bytes(data)
    return path


def mbox(path: Path, messages: list[bytes]) -> Path:
    """An mbox with these messages, by the standard library."""
    box = mailbox.mbox(path)
    for data in messages:
        box.add(data)
    box.close()
    return path


def contents(path: Path) -> Counter[bytes]:
    """The messages of a mailbox, each with how often it is there."""
    if path.is_dir():
        return Counter(file.read_bytes() for file in path.glob("[cn]*/*"))
    box = mailbox.mbox(path)
    try:
        return Counter(
            box.get_bytes(key).replace(b"\n>From ", b"\nFrom ")
            for key in box.keys()  # noqa: SIM118
        )
    finally:
        box.close()


MESSAGES = [mail(n) for n in range(6)] + [mail(n, ident=False) for n in range(6, 9)]
COPIES = [mail(1, received="two"), mail(3, received="two"), mail(7, ident=False, received="two")]


@pytest.mark.parametrize("make", [maildir, mbox])
def test_nothing_is_changed_unless_asked(tmp_path: Path, make: type) -> None:
    """The report says how many there are; the mailbox is as it was, byte by byte."""
    box = make(tmp_path / "box", MESSAGES + COPIES)
    before = contents(box)
    report = deduplicate_mail([box])
    assert (report.messages, report.duplicates, report.without_id) == (12, 3, 4)
    assert (report.deleted, report.moved) == (0, 0)
    assert report.duplicates_in == {str(box): 3}
    assert contents(box) == before


@pytest.mark.parametrize("make", [maildir, mbox])
def test_the_first_copy_stays(tmp_path: Path, make: type) -> None:
    """Deleted are the others; a second run has nothing to do."""
    box = make(tmp_path / "box", MESSAGES + COPIES)
    assert deduplicate_mail([box], delete=True).deleted == 3
    assert contents(box) == Counter(MESSAGES)
    assert deduplicate_mail([box], delete=True).duplicates == 0


@pytest.mark.parametrize("make", [maildir, mbox])
def test_what_is_moved_is_in_the_other_mailbox(tmp_path: Path, make: type) -> None:
    """Byte by byte, also when it has messages already; across all mailboxes that are named."""
    boxes = [make(tmp_path / "a", MESSAGES[:5]), make(tmp_path / "b", MESSAGES[3:] + COPIES)]
    assert deduplicate_mail(boxes, move=tmp_path / "twice").moved == 5
    assert contents(boxes[0]) == Counter(MESSAGES[:5])
    assert contents(boxes[1]) == Counter(MESSAGES[5:])
    assert contents(tmp_path / "twice") == Counter(MESSAGES[3:5] + COPIES)


def test_by_content(tmp_path: Path) -> None:
    """A Message-ID that two different messages have makes them one, unless content decides."""
    other = mail(1).replace(b"bars", b"rods")
    box = maildir(tmp_path / "box", [mail(1), other, mail(1, received="two")])
    assert deduplicate_mail([box]).duplicates == 2
    assert deduplicate_mail([box], by="content").duplicates == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"\xff\xfe\x00", _ODD, b"Message-ID: <>\n\n", b"no header at all", b"a: b" * 1000],
)
def test_odd_mail_has_a_key(data: bytes) -> None:
    """Invalid UTF-8, broken headers, no body, nothing at all: a message is itself, always."""
    assert message_key(data) == message_key(data)
    assert message_key(data, "content") != message_key(data + b"\n\nmore", "content")
    assert message_key(_ODD) == ("id", b"<odd@x>")
    assert message_key(b"Message-ID: <>\n\na") != message_key(b"Message-ID: <>\n\nb")


def test_line_ends_do_not_matter() -> None:
    """The same mail by two ways: with CRLF, with space at the end of lines, under other headers."""
    data = mail(1, ident=False)
    assert message_key(data) == message_key(data.replace(b"\n", b"\r\n"))
    assert message_key(data) == message_key(data.replace(b".\n", b".  \n\n").replace(b"one", b"2"))
    assert message_key(data) != message_key(data.replace(b"bars", b"rods"))


def test_an_interrupted_move_is_resumed(tmp_path: Path) -> None:
    """A message that was linked and not yet taken out is moved once; another of its name stays."""
    box = maildir(tmp_path / "box", [mail(1), mail(1), mail(1)])
    twice = maildir(tmp_path / "twice", [])
    os.link(box / "cur/00001.x:2,S", twice / "cur/00001.x:2,S")
    (twice / "new/00002.x").write_bytes(b"of somebody else")
    deduplicate_mail([box], move=twice)
    assert contents(box) == Counter([mail(1)])
    assert contents(twice) == Counter([mail(1), mail(1), b"of somebody else"])


@pytest.mark.slow
@pytest.mark.parametrize("make", [maildir, mbox])
def test_killed_at_any_moment(tmp_path: Path, make: type) -> None:
    """Each message is in its mailbox, in the other one, or in both; the next run does the rest."""
    copies = [mail(n, received="two") for n in range(150)]
    originals = [mail(n) for n in range(150)]
    box, twice = make(tmp_path / "box", originals + copies), make(tmp_path / "twice", [])
    command = [sys.executable, "-m", "bloomery", "mail", "dedup", str(box), "--move", str(twice)]
    for share in (0, 1 / 3, 2 / 3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_until(
            lambda share=share, process=process: (  # type: ignore[misc]
                size_of(twice) > share * size_of(box) or process.poll() is not None
            ),
            pause=0,
        )
        process.kill()
        process.wait()
        (tmp_path / "box.lock").unlink(missing_ok=True)  # as mail programs do with an old one
        (tmp_path / "twice.lock").unlink(missing_ok=True)
        assert contents(box) >= Counter(originals)
        assert contents(box) | contents(twice) >= Counter(originals + copies)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert contents(box) == Counter(originals)
    assert set(contents(twice)) == set(copies)


def size_of(path: Path) -> int:
    """Messages of a Maildir, bytes of an mbox."""
    return len(list(path.glob("[cn]*/*"))) if path.is_dir() else path.stat().st_size


def test_mail_that_goes_meanwhile(tmp_path: Path) -> None:
    """What a mail program deletes while the folder is read is passed over."""
    box = maildir(tmp_path / "box", MESSAGES)
    messages = Maildir(box).messages()
    next(messages)
    for file in [*box.glob("cur/*")]:
        file.unlink()
    assert len(list(messages)) == 4


def test_what_is_no_mailbox(tmp_path: Path) -> None:
    """It is said before anything is read, and nothing is changed."""
    box = mbox(tmp_path / "box", MESSAGES)
    (tmp_path / "text").write_text("Dear")
    (tmp_path / "folder").mkdir()
    for wrong, message in (("text", "no mbox"), ("folder", "no Maildir")):
        with pytest.raises(InvalidParameter, match=message):
            deduplicate_mail([tmp_path / wrong], delete=True)
    with pytest.raises(FileNotFoundError):
        deduplicate_mail([tmp_path / "none"])
    with pytest.raises(InvalidParameter, match="named twice"):
        deduplicate_mail([box, tmp_path / "." / "box"], delete=True)
    with pytest.raises(InvalidParameter, match="one of the mailboxes"):
        deduplicate_mail([box], move=box)
    with pytest.raises(InvalidParameter, match="is an mbox"):
        deduplicate_mail([box], move=tmp_path / "folder")
    assert contents(box) == Counter(MESSAGES)


def test_an_mbox_that_another_program_has(tmp_path: Path) -> None:
    """Locked, it is left alone; without a change to make it is read all the same."""
    box = mbox(tmp_path / "box", MESSAGES + COPIES)
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'rb+'); fcntl.lockf(file, fcntl.LOCK_EX);"
        "print(flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program, box], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    other.stdout.readline()
    try:
        with pytest.raises(OSError, match="locked by another program"):
            deduplicate_mail([box], delete=True)
        assert deduplicate_mail([box]).duplicates == 3
    finally:
        other.communicate()
    assert contents(box) == Counter(MESSAGES + COPIES)


def test_a_mailbox_is_no_copy_of_itself(tmp_path: Path) -> None:
    """Links between folders are refused; a message that is a link stays, and is no copy."""
    box = maildir(tmp_path / "box", [mail(0), mail(1)])
    (box / "cur/00000.x:2,S").symlink_to(box / "cur/00001.x:2,S")
    (box / "cur/00002.x:2,S").symlink_to(box / "cur/00001.x:2,S")
    report = deduplicate_mail([box], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (2, 2, 0)
    other = tmp_path / "other"
    other.mkdir()
    (other / "new").mkdir()
    (other / "cur").symlink_to(box / "cur")
    looped = tmp_path / "looped"
    (looped / "cur").mkdir(parents=True)
    (looped / "new").symlink_to("cur")
    (looped / "cur/1:2,S").write_bytes(mail(0))
    for boxes in ([box, other], [looped]):
        with pytest.raises(InvalidParameter, match="name each mailbox once"):
            deduplicate_mail(boxes, delete=True)
    with pytest.raises(InvalidParameter, match="one of the mailboxes"):
        deduplicate_mail([box], move=other)
    assert (box / "cur/00001.x:2,S").read_bytes() == mail(1)
    assert (looped / "cur/1:2,S").read_bytes() == mail(0)


def test_a_link_in_the_other_mailbox_is_no_copy(tmp_path: Path) -> None:
    """A message is not taken as moved because a link to it has its name there."""
    box, twice = maildir(tmp_path / "box", [mail(1), mail(1)]), maildir(tmp_path / "twice", [])
    (twice / "cur/00001.x:2,S").symlink_to(box / "cur/00001.x:2,S")
    deduplicate_mail([box], move=twice)
    assert [f.read_bytes() for f in twice.glob("cur/*") if not f.is_symlink()] == [mail(1)]


def test_text_that_looks_like_the_start_of_a_message(tmp_path: Path) -> None:
    """What an unquoted line cuts in two stays, and its parts are copies of nothing."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    text = mail(0, ident=False).replace(b"From here", b"\nFrom now")
    odd = start + text + b"\n" + start + text.replace(b"report 0", b"report 1") + b"\n"
    rest = start + mail(2).replace(b"From", b">From") + b"\n"
    (tmp_path / "box").write_bytes(odd + rest + rest)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (2, 4, 1)
    assert (tmp_path / "box").read_bytes() == odd + rest


@pytest.mark.parametrize("told", [False, True], ids=["no header follows", "Content-Length"])
def test_text_that_looks_just_like_an_envelope(tmp_path: Path, told: bool) -> None:
    """Two messages quote one mail, with its envelope: neither loses the end of its text."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    quoted = b"As he wrote:\n\n" + start + (mail(7) if told else b"\n12 bars\n")
    quoted = quoted.replace(b"\nFrom here", b"\n>From here")
    length = b"Content-Length: %d\n" % len(quoted) if told else b""
    box = b"".join(
        start + b"Message-ID: <%d@x>\n" % number + length + b"\n" + quoted + b"\n"
        for number in (1, 2)
    )
    copies = start + b"Message-ID: <3@x>\n\n3 rods\n\n"
    (tmp_path / "box").write_bytes(box + copies + copies)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (2, 4, 1)
    assert (tmp_path / "box").read_bytes() == box + copies


def test_a_mail_inside_another_that_nothing_tells_apart(tmp_path: Path) -> None:
    """Unquoted, with envelope and headers, it is a message: a copy of it stays in the file."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    inner = start + b"Message-ID: <7@x>\n\n12 bars\n\n"
    outer = [start + b"Message-ID: <%d@x>\n\nHe wrote:\n\n" % n for n in (1, 2)]
    (tmp_path / "box").write_bytes(outer[0] + inner + outer[1] + inner)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.deleted) == (4, 1)
    assert (tmp_path / "box").read_bytes() == outer[0] + inner + outer[1]


def test_a_content_length_that_lies_keeps_mail(tmp_path: Path) -> None:
    """One that is too long may leave copies in the file, and takes out nothing else."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    copies = 2 * (start + b"Message-ID: <3@x>\n\n3 rods\n\n")
    liar = start + b"Message-ID: <1@x>\nContent-Length: %d\n\n12 bars\n\n" % (len(copies) + 5)
    (tmp_path / "box").write_bytes(copies + liar + copies)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (2, 3, 1)
    assert (tmp_path / "box").read_bytes() == copies[: len(copies) // 2] + liar + copies


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "odd",
    [
        pytest.param((b"Content-Length: 999999", b"", b"12 bars", b""), id="past the end"),
        pytest.param((b"X: 1", b"", b"Content-Length: 40", b""), id="in the text"),
        pytest.param((b"Content-Length: 10", b"", b"12 bars", b""), id="two bytes too many"),
    ],
)
def test_a_content_length_that_says_nothing(
    tmp_path: Path, odd: tuple[bytes, ...], end: bytes
) -> None:
    """The messages behind it are messages, and copies of each other."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024" + end
    copy = start + end.join([b"Message-ID: <3@x>", b"", b"3 rods", b"", b""])
    first = start + b"Message-ID: <1@x>" + end + end.join([*odd, b""])
    (tmp_path / "box").write_bytes(first + copy * 3)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (4, 0, 2)
    # Behind lines that end with \r\n the standard library writes an empty line more.
    assert (tmp_path / "box").read_bytes().split() == (first + copy).split()


def test_what_is_left_of_a_long_message_is_counted_down(tmp_path: Path) -> None:
    """Two bytes that its parts leave open, of empty lines at the end, do not make the next message
    a part of it."""
    start = b"From a@example.org Mon Jan  1 10:00:00 2024\n"
    quoted = b"As he wrote:\n\n" + start + b"Message-ID: <7@x>\n\n12 bars\n"
    length = b"Content-Length: %d\n" % (len(quoted) + 2)
    long = start + b"Message-ID: <1@x>\n" + length + b"\n" + quoted + b"\n"
    copy = start + b"Message-ID: <3@x>\n\n3 rods\n\n"
    (tmp_path / "box").write_bytes(long + copy * 2)
    report = deduplicate_mail([tmp_path / "box"], delete=True)
    assert (report.messages, report.unreadable, report.deleted) == (2, 2, 1)
    assert (tmp_path / "box").read_bytes() == long + copy


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n", b"\r\n\r\n"])
def test_a_last_line_without_an_end(tmp_path: Path, end: bytes) -> None:
    """What is moved behind it is a message of its own."""
    box, twice = mbox(tmp_path / "box", [mail(1), mail(1)]), mbox(tmp_path / "twice", [mail(2)])
    twice.write_bytes(twice.read_bytes().rstrip() + end)
    deduplicate_mail([box], move=twice)
    assert len(list(contents(twice).elements())) == 2
    assert contents(twice)[mail(1)] == 1


@pytest.mark.parametrize("make", [maildir, mbox])
def test_a_copy_that_says_more_stays(tmp_path: Path, make: type) -> None:
    """Cut off, the first copy does not stand for the whole one, which does for all after it."""
    whole = mail(1) + b"and 3 rods\n"
    box = make(tmp_path / "box", [mail(1), whole, mail(1, received="two"), whole])
    report = deduplicate_mail([box], delete=True)
    assert (report.longer, report.duplicates, report.deleted) == (1, 2, 2)
    assert contents(box) == Counter([mail(1), whole])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_an_mbox_stays_its_owners(tmp_path: Path) -> None:
    """Written anew by root, it is still the user's."""
    box = mbox(tmp_path / "box", MESSAGES + COPIES)
    os.chown(box, 1234, 4321)
    box.chmod(0o640)
    deduplicate_mail([box], delete=True)
    status = box.stat()
    assert (status.st_uid, status.st_gid, status.st_mode & 0o777) == (1234, 4321, 0o640)
