"""The command's process ends at once, and loses nothing."""

import os
import pstats
import subprocess
import sys
from pathlib import Path

import pytest

_ENDS = "import atexit, sys, threading, time\nfrom runners.cli.app import leave\n"
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
print("written")
leave(4)
"""
    assert ended(program) == (4, "written\nexit function\n", "told")
    assert ended("sys.stderr.close()\nleave(3)") == (3, "", "")
    thread = "threading.Thread(target=lambda: (time.sleep(0.3), print('done'))).start()"  # it is waited for
    assert ended(f"{thread}\nleave(3)") == (3, "done\n", "")


def test_an_output_that_has_no_room_is_an_error() -> None:
    told = "ablate: the output could not be written to its end: No space left on device\n"
    assert ended("print('lost')\nleave(0)", '"$0" -c "$1" >/dev/full') == (5, "", told)


@pytest.mark.parametrize(("reader", "found"), [("head -c 0", (4, "", "")), ("cat", (4, "unread\n", ""))])
def test_a_reader_may_go_away_before_the_end(reader: str, found: tuple[int, str, str]) -> None:
    program = "time.sleep(0.3)\nprint('unread')\nleave(4)"
    assert ended(program, f'"$0" -c "$1" | {reader}; exit ${{PIPESTATUS[0]}}') == found


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_a_process_without_output_ends_too(closed: str) -> None:
    assert ended("leave(2)", f'"$0" -c "$1" {closed}') == (2, "", "")


def test_a_profiler_sees_the_end(tmp_path: Path) -> None:
    found = tmp_path / "profile"
    program = tmp_path / "program.py"
    program.write_text(f"{_ENDS}leave(4)")
    ended("", f'"$0" -m cProfile -o {found} {program}')
    assert "leave" in {function for _, _, function in pstats.Stats(str(found)).stats}  # type: ignore[attr-defined]
