"""Run pytest, then failed tests once more, alone. If they pass then, they are listed as *unstable*, and the run passes.

Lines of the list go to the file that UNSTABLE names, or to the end of the output.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest


def main(arguments: list[str]) -> int:
    """Return pytest's exit code of the first run, or of the second if the first had failures and nothing worse."""
    with tempfile.TemporaryDirectory() as cache:
        code, failed = run_pytest(cache, arguments)
        # if a file cannot be collected, pytest-xdist runs no test, but its exit code is that of failed tests
        if code != pytest.ExitCode.TESTS_FAILED or not failed or not all("::" in test for test in failed):
            return code
        sys.stdout.write("\nOnce more, alone:\n")
        sys.stdout.flush()
        report = f"{cache}/report.xml"
        code, left = run_pytest(cache, ["--exitfirst", f"--junitxml={report}", *failed])
        if code == 0 and count_passed(report) < len(failed):
            return pytest.ExitCode.TESTS_FAILED  # a skipped test has not passed
    if code == 0 and left:
        code = pytest.ExitCode.TESTS_FAILED  # a test ended the process
    if code == 0:
        list_unstable(failed)
    return code


def count_passed(report: str) -> int:
    """Count the tests that passed in a report of JUnit's format."""
    cases = ElementTree.parse(report).iter("testcase") if Path(report).exists() else ()
    return sum(not len(case) or {each.tag for each in case} <= {"system-out", "system-err"} for case in cases)


def run_pytest(cache: str, arguments: list[str]) -> tuple[int, list[str]]:
    """Return the exit code, and the tests that failed in a run with this cache and have not passed since."""
    command = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
    code = subprocess.run(command, check=False).returncode
    record = Path(cache) / "v/cache/lastfailed"
    return code, list(json.loads(record.read_bytes())) if record.exists() else []


def list_unstable(tests: list[str]) -> None:
    """Append the tests to the file of a longer run, which prints it at its end, or print them."""
    lines = "".join(f"  {test}\n" for test in tests)
    if place := os.environ.get("UNSTABLE"):
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(lines)
    else:
        sys.stdout.write(f"\nunstable:\n{lines}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
