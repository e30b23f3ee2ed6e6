"""Output of commands: numbers for people and for programs, notices of slow steps, and a process that loses nothing."""

import json
import os
import subprocess
import sys
import threading
from decimal import Decimal
from typing import Any

import polars as pl
import pytest

from ablate.grid.names import shorten
from ablate.runners import output
from ablate.runners.cli.cell_tables import format_number, format_percent
from ablate.runners.output import say, slow_notice, write, write_json, write_rows, write_table


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1795265293.25, "1795265293"),
        (-123456.0, "-123456"),
        (12345.678, "12345.7"),
        (0.123456789, "0.123457"),
        (-0.0, "0"),
        (1.5e-7, "1.5e-07"),
        (999999999999999.0, "999999999999999"),
        (1e15, "1e+15"),
        (float("inf"), "inf"),
        (float("nan"), "nan"),
        (Decimal(12345678901234567890), "12345678901234567890"),
        (Decimal("1.50"), "1.50"),
        (1234567, "1234567"),
        (None, "-"),
        (True, "yes"),
    ],
)
def test_numbers_keep_their_whole_part(value: object, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_table(["what", "value"], [("it", value)])
    assert capsys.readouterr().out.split("\n")[1].split() == ["it", shown]
    if value is not None:
        write_table(["wide heading" * 2], [(value,)])
        line = capsys.readouterr().out.split("\n")[1]
        assert line.rstrip() == line  # it stands to the right


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (Decimal(7), 7),
        (Decimal("7.00"), 7),
        (Decimal(2**80), 2**80),
        (Decimal("1.25"), 1.25),
        ([Decimal(3), {"deep": Decimal("0.5")}], [3, {"deep": 0.5}]),
        (float("nan"), None),
        (float("-inf"), None),
    ],
)
def test_numbers_in_json_are_numbers(value: object, read: object, capsys: pytest.CaptureFixture[str]) -> None:
    write_json("sql", {"value": value})
    found = json.loads(capsys.readouterr().out)["data"]["value"]
    assert found == read
    assert type(found) is type(read)


def test_no_text_acts_on_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    label = "a\x1b[2Jb\x9bc\u202ed"
    write_table([label], [(label,), ([label],)])
    say(label)
    write(label)
    write_json("sql", {label: label})
    said = capsys.readouterr()
    told = said.out + said.err
    assert all(character.isprintable() or character == "\n" for character in told)
    assert told.count(r"a\u001b[2Jb\u009bc\u202ed") == 7
    assert json.loads(said.out.splitlines()[-1])["data"] == {label: label}
    write_table(["plan"], [("first\nsecond",)])
    assert [line.strip() for line in capsys.readouterr().out.splitlines()] == ["plan", "first", "second"]


def test_spare_columns_go_first_then_the_first_column_breaks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ("a cell with a rather long name", 5, "0.03075", "real, size unproven")
    monkeypatch.setenv("COLUMNS", "55")
    write_table(["cell", "n", "mean", "verdict"], [row], spare=(2, 1))
    assert capsys.readouterr().out.splitlines()[-1] == "left out at 55 columns: mean"
    monkeypatch.setenv("COLUMNS", "40")
    write_table(["cell", "n", "mean", "verdict"], [row], spare=(2, 1))
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].rstrip().endswith("real, size unproven")
    assert lines[-1] == "left out at 40 columns: n, mean"


def test_long_labels_lose_their_middle_and_stay_different(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shorten(["short", "gpt2 of 3 layers", "gpt2 of 4 layers"], 12) == ["short", "gpt…3 layers", "gpt…4 layers"]
    assert shorten(["aaaaXaaaa", "aaaaYaaaa"], 4) == ["aaaaXaaaa", "aaaaYaaaa"]
    monkeypatch.setenv("COLUMNS", "40")
    rows = [(f"{head} head of the first layer", "name", "+12.5", "better") for head in ("first", "last")]
    write_table(["cell", "axis", "difference", "verdict"], rows, labels=2)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == ["better"] * 2
    assert [line.split()[0] for line in lines[1:]] == ["first", "last"]
    assert all("…" in line and "name" in line and len(line) <= 40 for line in lines[1:])


def test_small_changes_and_whole_numbers_keep_digits_that_differ() -> None:
    assert [format_percent(value) for value in (0.0, -0.0312, 0.00027, 0.05, 12.34)] == [
        "+0.0", "-0.03", "+0.0003", "+0.1", "+12.3",
    ]  # fmt: skip
    assert [format_number(value) for value in (28704.000000001, 28708.0, 28704.4)] == ["28,704", "28,708", "2.870e+04"]


@pytest.mark.parametrize("width", [12, 40, 79, 100])
def test_a_number_is_shown_whole_or_its_column_is_named(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    headings = [f"column{at}" for at in range(12)]
    row = [0.00104154, "a text of words", "0123456789abcdef" * 2, *(f"{0.1 + at:.9f}" for at in range(9))]
    write_table(headings, [row])
    table, _, left_out = capsys.readouterr().out.partition("left out at ")
    assert max(map(len, table.splitlines())) <= width
    for heading, value in zip(headings, row, strict=True):
        shown, named = str(value) in table.split(), heading in left_out.replace(",", " ").split()
        assert named if heading not in table else not named and (shown or isinstance(value, str))
    assert all(str(value) in table.split() for value in row[3:] if str(value)[:4] in table)
    write_table(["trial", *headings], [("the first trial", *row)], overflow="blocks")
    blocks = capsys.readouterr().out
    assert "left out" not in blocks
    assert all(str(value) in blocks.split() for value in (row[0], *row[3:]))


def test_shortened_headings_differ(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    headings = [f"axis_{at}_of_a_long_name" for at in range(4)]
    write_table([*headings, "difference"], [(*["level_of_a_long_name"] * 4, "+12.5")], labels=4)
    shown = capsys.readouterr().out.splitlines()[0].split()[:4]
    assert len(set(shown)) == 4
    assert all("…" in heading for heading in shown)


def test_a_brief_table_has_a_line_per_row(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("first", 0.00104154, "a long description " * 9), ("second", 12.5, "a short one")]
    write_table(["name", "value", "description"], rows, overflow="ellipsis")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["first", "0.00104154"], ["second", "12.5"]]
    assert lines[1].endswith("…")
    assert lines[2].rstrip().endswith("a short one")
    assert max(map(len, lines)) <= 60


@pytest.mark.parametrize("overflow", ["fold", "ellipsis", "blocks", "lines"])
def test_a_table_in_a_pipe_has_a_line_per_row_all_columns_and_no_escape_codes(
    overflow: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    headings = ["cell", "a heading of words", *(f"column_{at}" for at in range(40))]
    rows = [(f"cell {at} " + "of a long name " * 20, "words " * 30, *range(1000, 1040)) for at in range(3)]
    printed = write_table(headings, rows, spare=(3, 4), labels=1, overflow=overflow)
    lines = capsys.readouterr().out.splitlines()
    assert printed == len(lines) == 4
    for line, texts in zip(lines, [headings, *rows], strict=True):
        assert " ".join(line.split()) == " ".join(" ".join(map(str, texts)).split())


@pytest.mark.parametrize("columns", ["60", "400", None])
def test_rows_of_a_query_are_lines_whatever_they_hold(
    columns: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns) if columns else monkeypatch.delenv("COLUMNS", raising=False)
    lists = [[0, None], [1, 2], []]
    write_rows(pl.DataFrame({"text": ["a\nb " * 30, "c\nd", "e"], "step": [1, 2, 3], "lists": lists, "n": [7, 8, 9]}))
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["text", "step", "lists", "n"]
    assert [line.split()[-1] for line in lines] == ["7", "8", "9"]


_ENDS = "import atexit, sys, threading, time\nfrom ablate.runners.cli.app import leave\n"
_BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}


def ended(program: str, shell: str = '"$0" -c "$1"') -> tuple[int, str, str]:
    """Exit status, stdout and stderr of `program`, started as `shell` says."""
    call = ["bash", "-c", shell, sys.executable, _ENDS + program]
    found = subprocess.run(call, capture_output=True, text=True, check=False, env=_BUFFERED)
    return found.returncode, found.stdout, found.stderr


def test_what_was_written_arrives_and_modules_are_not_taken_apart() -> None:
    program = """
class Kept:
    def __del__(self): print("taken apart")
kept = Kept()
sys.stderr.write("told")
atexit.register(lambda: print("exit function"))
if DAEMON: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("written")
leave(4)
"""
    for daemon in (False, True):
        assert ended(f"DAEMON = {daemon}\n{program}") == (4, "written\nexit function\n", "told")
    assert ended("sys.stderr.close()\nleave(3)") == (3, "", "")
    thread = "threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start()"  # it is waited for
    assert ended(f"{thread}\nleave(3)") == (3, "done\n", "")


def test_an_output_that_has_no_room_is_an_error() -> None:
    told = "ablate: the output could not be written to its end: No space left on device\n"
    assert ended("print('lost')\nleave(0)", '"$0" -c "$1" >/dev/full') == (5, "", told)


def test_a_process_without_a_reader_or_output_ends_too() -> None:
    program = "time.sleep(0.3)\nprint('unread')\nleave(4)"
    assert ended(program, '"$0" -c "$1" | head -c 0; exit ${PIPESTATUS[0]}') == (4, "", "")
    assert ended("leave(2)", '"$0" -c "$1" >&- 2>&-') == (2, "", "")


def test_a_step_that_lasts_is_named_and_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    is_named = threading.Event()
    monkeypatch.setattr(output, "SLOW_AFTER_S", 0.001)
    lines: list[str] = []
    monkeypatch.setattr(output, "say", lambda text: (lines.append(text), is_named.set()))
    with slow_notice("lasting"):
        assert is_named.wait(60)
    assert lines == ["lasting ..."]
    monkeypatch.setattr(output, "SLOW_AFTER_S", 3600.0)
    with slow_notice("quick"):
        (timer,) = [each for each in threading.enumerate() if isinstance(each, threading.Timer)]
    timer.join(60)
    assert threading.active_count() == before
