"""Answers come as tables or as JSON, and nothing a server sent can drive a terminal."""

from __future__ import annotations

import io
import json

import pytest

from penstock.cli.message_format import message_text, payload_document
from penstock.cli.output import (
    Facts,
    Screen,
    TableListing,
    printable,
    show_bytes,
    show_duration,
    show_limit,
    show_rate,
    show_time,
)

MALICE = "\x1b]0;owned\x07\x9b31m"


def test_answer_is_printed_once_in_form_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = (Facts("Thing", [("size", "1"), ("left out", "")]), "a line")
    Screen(as_json=True).answer({"a": "ü"}, *blocks)
    assert json.loads(capsys.readouterr().out) == {"a": "ü"}
    Screen(as_json=False).answer({"a": "ü"}, *blocks)
    told = capsys.readouterr().out
    assert "size" in told
    assert "a line" in told
    assert "left out" not in told


def test_item_is_one_line_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=True).item({"a": "two\nlines"}, "")
    assert capsys.readouterr().out == '{"a": "two\\nlines"}\n'


@pytest.mark.parametrize("as_json", [True, False])
def test_remarks_stay_out_of_answers(as_json: bool, capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=as_json).remark("listening")
    assert capsys.readouterr() == ("", "listening\n")


def test_brackets_in_cell_are_text_and_not_style(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=False).answer(None, TableListing("[red]t", ("a",), [("[bold]x[/]",)]))
    told = capsys.readouterr().out
    assert "[red]t" in told
    assert "[bold]x[/]" in told


def test_empty_listing_reports_it(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(as_json=False).answer([], TableListing("Streams", ("name",), []))
    assert capsys.readouterr().out == "Streams: nothing\n"


@pytest.mark.parametrize("place", ["title", "cell", "header", "payload", "line"])
def test_nothing_server_sent_drives_terminal(
    place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = Screen(as_json=False)
    match place:
        case "title":
            screen.answer(None, Facts(MALICE, [("a", "b")]))
        case "cell":
            screen.answer(None, TableListing("t", ("a",), [(MALICE,)]))
        case "header":
            screen.item(None, message_text("t", {"A": MALICE}, b""))
        case "payload":
            screen.item(None, message_text("t", None, MALICE.encode()))
        case "line":
            screen.answer(None, MALICE)
    told = capsys.readouterr().out
    assert not {"\x1b", "\x07", "\x9b"} & set(told)
    assert "owned" in told


def test_line_ends_and_tabs_of_payload_stay() -> None:
    assert printable("a\tb\nc") == "a\tb\nc"
    assert printable("a\rb") == "a\\rb"


def test_payload_that_is_no_text_travels_as_base64() -> None:
    assert payload_document(b"\xff\x00") == {"data": "/wA=", "encoding": "base64"}
    assert payload_document("ü".encode()) == {"data": "ü", "encoding": "utf-8"}


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0s"),
        (1_500, "1.5µs"),
        (250_000_000, "250ms"),
        (1_500_000_000, "1.5s"),
        (90_000_000_000, "1m 30s"),
        (3_600_000_000_000, "1h"),
        (183_600_000_000_000, "2d 3h"),
        (-1, "–"),
    ],
)
def test_duration_is_reported_in_units_that_matter(ns: int, text: str) -> None:
    assert show_duration(ns) == text


def test_sizes_limits_and_times_are_reported_as_people_read_them() -> None:
    assert [show_bytes(n) for n in (0, 1023, 1536)] == ["0 B", "1,023 B", "1.5 KiB"]
    assert [show_limit(n) for n in (-1, 0, 1000)] == ["unlimited", "unlimited", "1,000"]
    assert show_time("2026-01-31T12:00:00.123456789Z") == "2026-01-31 12:00:00 UTC"
    assert show_time("0001-01-01T00:00:00Z") == "never"


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("as_json", "drawn"), [(False, True), (True, False)])
def test_bar_is_drawn_on_terminal_unless_json_is_wanted(
    as_json: bool, drawn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Screen(as_json=as_json).progress("Putting x", 10, as_bytes=True) as done:
        done(10)
    assert ("Putting x" in terminal.getvalue()) == drawn


def test_no_bar_is_drawn_without_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Screen(as_json=False).progress("Putting x", 10) as done:
        done(10)
    assert capsys.readouterr() == ("", "")


def test_bar_of_steps_shows_what_is_done_and_how_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    with Screen(as_json=False).steps("Folding x", unit="tasks") as progress:
        assert progress is not None
        progress(3, 12)
    shown = terminal.getvalue()
    assert "Folding x" in shown
    assert "3/12" in shown
    assert "tasks/s" in shown


def test_steps_are_not_counted_without_terminal() -> None:
    with Screen(as_json=False).steps("Folding x") as progress:
        assert progress is None


def test_slow_rates_have_digit_after_point() -> None:
    assert show_rate(0.25, "tasks") == "0.2 tasks/s"
    assert show_rate(12_345.6) == "12,345/s"
