"""Tests that fail once and pass alone are unstable and let the run pass; all else that goes wrong fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "rerun_failed.py"
START = """\
import os
from pathlib import Path

def first(name):
    seen = Path(name).exists()
    Path(name).touch()
    return not seen

def test_good():
    Path("ran").touch()
"""
FAILS_ONCE = "\ndef test_fails_once():\n    assert not first('fails')\n"
CRASHES_ONCE = "\ndef test_crashes_once():\n    if first('crashes'):\n        os._exit(1)\n"
FAILS = "\ndef test_fails():\n    assert False\n"
CRASHES = "\ndef test_crashes():\n    os._exit(0)\n"


def run(place: Path, planted: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (place / "pytest.ini").write_text("[pytest]\naddopts = -p no:dash -p no:randomly\n", encoding="utf-8")
    (place / "test_planted.py").write_text(START + planted, encoding="utf-8")
    command = [sys.executable, PROGRAM, "--numprocesses=2", "--dist=worksteal", *arguments]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_") and name != "UNSTABLE"}
    environment = {**kept, **environment}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)


def listed(output: str) -> list[str]:
    """Return the tests below the heading at the end."""
    _, _, lines = output.partition("\nunstable:\n")
    return sorted(line.strip() for line in lines.splitlines())


def test_a_run_passes_and_lists_what_failed_and_crashed_once(tmp_path: Path) -> None:
    result = run(tmp_path, FAILS_ONCE + CRASHES_ONCE)
    assert result.returncode == 0, result.stdout
    unstable = ["test_planted.py::test_crashes_once", "test_planted.py::test_fails_once"]
    assert listed(result.stdout) == unstable
    assert not (tmp_path / ".pytest_cache").exists()  # two runs in one checkout would mix their failures


def test_a_longer_run_finds_the_list_in_its_file(tmp_path: Path) -> None:
    place = tmp_path / "unstable"
    place.write_text("  of another run\n", encoding="utf-8")
    result = run(tmp_path, FAILS_ONCE, UNSTABLE=str(place))
    assert (result.returncode, listed(result.stdout)) == (0, [])
    assert place.read_text(encoding="utf-8") == "  of another run\n  test_planted.py::test_fails_once\n"


@pytest.mark.parametrize("planted", [FAILS_ONCE + FAILS, FAILS_ONCE + CRASHES], ids=["fails", "crashes"])
def test_what_goes_wrong_again_alone_fails_the_run(tmp_path: Path, planted: str) -> None:
    result = run(tmp_path, planted)
    assert (result.returncode, listed(result.stdout)) == (1, []), result.stdout


def test_a_file_that_cannot_be_collected_fails_the_run_at_once(tmp_path: Path) -> None:
    """No test ran, so that nothing is left to say of those in other files."""
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n", encoding="utf-8")
    result = run(tmp_path, "\nfor _ in range(2):\n    Path('imported').open('x')\n")
    assert (result.returncode, listed(result.stdout)) == (1, []), result.stdout
    assert not (tmp_path / "ran").exists()


def test_other_exit_codes_are_those_of_the_first_run(tmp_path: Path) -> None:
    result = run(tmp_path, "", "-k", "absent")
    assert (result.returncode, listed(result.stdout)) == (pytest.ExitCode.NO_TESTS_COLLECTED, []), result.stdout
