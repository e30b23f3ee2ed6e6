"""The command's process ends at once, and loses nothing."""

import os
import subprocess
import sys

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
