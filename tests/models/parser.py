"""A naive reader of the client protocol: splits, strips and regular expressions.

The law the compiled parser is held to, in the order in which the reference looks at things. It
reads one whole buffer from the start, keeps nothing, and is slow and obvious on purpose.
"""

import re
from dataclasses import dataclass

BLANKS = b" \t"
#: A whole line, with its verb and blanks, may have this much.
LINE_BYTES_MAX = 65300

NEEDS_BLANK = ("PUB", "HPUB", "SUB", "UNSUB", "-ERR")
BARE = ("PING", "PONG", "+OK")
VERBS = (*NEEDS_BLANK, *BARE, "CONNECT", "INFO")

UNKNOWN_VERB = "unknown verb"
BAD_ARGUMENTS = "bad arguments"
LINE_TOO_LONG = "line too long"
PAYLOAD_TOO_BIG = "payload too big"
HEADERS_NOT_ENABLED = "headers not enabled"

Frame = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    max_control_line: int = 4096
    max_payload: int = 1048576
    headers: bool = True


class FaultError(Exception):
    """The bytes are not the protocol; the text says why."""


class MoreNeededError(Exception):
    """The bytes may be the start of a frame."""


def parse(data: bytes, limits: Limits) -> tuple[list[Frame], bytes, str | None]:
    """The frames, what is left over, and what is wrong with that (or None)."""
    frames: list[Frame] = []
    while data:
        try:
            frame, length = _first_frame(data, limits)
        except MoreNeededError:
            return frames, data, None
        except FaultError as fault:
            return frames, data, str(fault)
        frames.append(frame)
        data = data[length:]
    return frames, b"", None


def _first_frame(data: bytes, limits: Limits) -> tuple[Frame, int]:
    verb = _verb(data)
    if verb in BARE:
        line = data.split(b"\n", 1)[0]
        _check_whole_line(len(line))
        if b"\n" not in data:
            raise MoreNeededError
        return (verb,), len(line) + 1
    behind = data[len(verb) :]
    if verb in NEEDS_BLANK:
        if not behind:
            raise MoreNeededError
        if behind[:1] not in (b" ", b"\t"):
            raise FaultError(UNKNOWN_VERB)
    arguments = behind.lstrip(BLANKS)
    before = len(data) - len(arguments)
    # The first byte never ends the line, not even when it is the line's end.
    newline = arguments.find(b"\n", 1)
    line = arguments if newline < 0 else arguments[:newline]
    line_length = before + len(line)
    if len(line) > 1 and line.endswith(b"\r"):
        line = line[:-1]
    if len(line) > limits.max_control_line:
        raise FaultError(LINE_TOO_LONG)
    _check_whole_line(line_length)
    if newline < 0:
        raise MoreNeededError
    if verb in ("PUB", "HPUB"):
        frame, body_length = _publish(verb, line, data[line_length + 1 :], limits)
        return frame, line_length + 1 + body_length
    if verb in ("SUB", "UNSUB"):
        return (verb, *_words(line)[:4]), line_length + 1
    return (verb, line), line_length + 1


def _verb(data: bytes) -> str:
    for verb in VERBS:
        spelled = verb.encode()
        if data[: len(spelled)].upper() == spelled:
            return verb
    if any(verb.encode().startswith(data.upper()) for verb in VERBS):
        raise MoreNeededError
    raise FaultError(UNKNOWN_VERB)


def _check_whole_line(length: int) -> None:
    if length > LINE_BYTES_MAX:
        raise FaultError(LINE_TOO_LONG)


def _words(line: bytes) -> list[bytes]:
    return re.findall(rb"[^ \t\r\n]+", line)


def _number(word: bytes) -> int:
    if not re.fullmatch(rb"[0-9]{1,9}", word):
        raise FaultError(BAD_ARGUMENTS)
    return int(word)


def _publish(verb: str, line: bytes, behind: bytes, limits: Limits) -> tuple[Frame, int]:
    words = _words(line)
    if verb == "HPUB" and not limits.headers:
        raise FaultError(HEADERS_NOT_ENABLED)
    numbers = 2 if verb == "HPUB" else 1
    if len(words) - numbers not in (1, 2):
        raise FaultError(BAD_ARGUMENTS)
    sizes = [_number(word) for word in words[-numbers:]]
    header, size = (0, *sizes)[-2:]
    if header > size:
        raise FaultError(BAD_ARGUMENTS)
    if size > limits.max_payload:
        raise FaultError(PAYLOAD_TOO_BIG)
    closing = behind[size : size + 2]
    if not b"\r\n".startswith(closing):
        raise FaultError(UNKNOWN_VERB)
    if len(behind) < size + 2:
        raise MoreNeededError
    reply = words[1] if len(words) == numbers + 2 else b""
    return (verb, words[0], reply, header, behind[:size]), size + 2
