"""The command in surroundings that lack something: outputs, docstrings, a place for temporary files; real processes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from real_spec import real_spec

LOUD = """
import os, subprocess
print("printed")
os.write(1, b"written to the descriptor\\n")
subprocess.run(["echo", "said by a child"], check=True)
"""
LATER = """
import math
from ablate.variants.papers.catalogue import named_operator

print("printed at the end")


@named_operator("beyond")
def mine(strength: float = 1.0):
    \"\"\"Softmax under another name.\"\"\"
    print("printed by a function")
    return softmax().changed(name="mine")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a loud spec and its campaign, which `python -m ablate` made."""
    folder = tmp_path_factory.mktemp("place")
    text = real_spec("tried", training="steps=2", operators="softmax(), ssa()", seeds=2, before=LOUD, after=LATER)
    (folder / "spec.py").write_text(text)
    made = command("run spec.py --campaign c", folder)
    assert (made.returncode, made.stdout) == (0, ""), made.stderr
    assert "said by a child" in made.stderr
    return folder


def command(
    words: str, folder: Path, shell: str = '"$0" -m ablate $1', **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run `words` after `python -m ablate`, as `shell` says."""
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell, sys.executable, words],
        cwd=folder,
        env={**{name: value for name, value in os.environ.items() if name != "PYTHONPATH"}, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [
        "plan spec.py --campaign c --json",
        "plan spec.py --campaign c --calibrate --json training.steps=1",
        "operators mine --spec spec.py --json",
        "repro operator=softmax seed=0 --campaign c --json",
        "evaluate --campaign c --json",
    ],
)
def test_what_a_spec_prints_is_not_among_the_results(place: Path, words: str) -> None:
    found = command(words, place)
    assert json.loads(found.stdout), found.stderr


SEVERAL = """
import contextlib, io, json, shlex, sys
from ablate.runners.cli.app import execute
answers = []
for words in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = execute(shlex.split(words))
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


def several(commands: list[str], folder: Path, **environment: str) -> list[tuple[int, str, str]]:
    """Run the commands in one process; exit code, stdout and stderr of each."""
    call = [sys.executable, "-c", SEVERAL, json.dumps(commands)]
    found = subprocess.run(
        call, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    return [(code, out, err) for code, out, err in json.loads(found.stdout.splitlines()[-1])]


def test_without_docstrings_the_answers_are_the_same(place: Path) -> None:
    commands = [
        "plan spec.py --campaign c --json",
        "operators --spec spec.py --json",
        "operators ssa",
        "tasks --json",
        "tasks grammar",
        "tasks minimal_pairs --json",
        "probes --json",
        "probes sink_share",
        "papers ssa --json",
        "prove spec.py",
        "run --help",
        "run spec.py --campaign again --on inline",
        "sql --campaign again --json 'SELECT trial, name, value FROM v_final WHERE source <> $$system$$ ORDER BY ALL'",
        "status --campaign again",
    ]
    dropped = several(commands, place, PYTHONOPTIMIZE="2")
    shutil.rmtree(place / "again")
    for words, ours, theirs in zip(commands, dropped, several(commands, place), strict=True):
        assert (words, ours[0]) == (words, 0), ours[2]
        assert (words, ours[0], _without_time(ours[1])) == (words, theirs[0], _without_time(theirs[1]))


def _without_time(text: str) -> str:
    return re.sub(r"in [\d.]+ s", "", text)


@pytest.mark.parametrize(
    ("words", "nowhere"),
    [
        ("status --campaign c", ">/dev/full"),
        ("status --campaign c", ">&-"),
        ("sql --campaign c --csv FROM/**/trial", ">/dev/full"),
        ("export trials - --campaign c --format csv", ">/dev/full"),
        ("operators --help", ">&-"),
    ],
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_an_output_that_takes_nothing_is_a_sentence(place: Path, words: str, nowhere: str, unbuffered: str) -> None:
    """Also if the last write fails alone, as it does with a buffer."""
    found = command(words, place, f'"$0" -m ablate $1 {nowhere}', PYTHONUNBUFFERED=unbuffered)
    assert found.returncode == 5
    assert found.stderr.count("stdout") == 1


def test_a_reader_that_goes_away_is_no_error(place: Path) -> None:
    found = command("operators", place, '"$0" -m ablate $1 | head -c 0')
    assert (found.returncode, "stdout" in found.stderr) == (0, False)


def test_a_run_needs_no_stdout(place: Path) -> None:
    found = command("run spec.py --campaign nowhere --on inline", place, '"$0" -m ablate $1 >&-')
    assert found.returncode == 0, found.stderr


NO_PLACE = """
import sys, tempfile
tempfile._candidate_tempdir_list = list  # as where none can be written
from ablate.runners.cli.app import main
main()
"""


@pytest.mark.parametrize("words", ["run spec.py --campaign c", "status --campaign c", "tasks grammar"])
def test_without_a_place_for_temporary_files_the_environment_is_named(place: Path, words: str) -> None:
    """Also for a spec file whose first import is torch."""
    call = [sys.executable, "-c", NO_PLACE, *words.split()]
    found = subprocess.run(call, cwd=place, capture_output=True, text=True, check=False)
    assert (found.returncode, "TMPDIR" in found.stderr.splitlines()[-1]) == (5, True), found.stderr
