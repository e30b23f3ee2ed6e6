"""The command: what it prints where, and the exit codes it promises."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from submission_files import SMALL
from synthetic import write_campaign

from ablate.runners.cli.app import app, execute
from ablate.runners.cli.commands import COMMANDS as EXAMPLES, register_commands

ROOT = Path(__file__).parent.parent.parent
COMMANDS = [name for own in EXAMPLES.values() for name in own]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    write_campaign(root, operators=("softmax", "SSA", "Integral"), seeds=range(4), **SMALL)
    return root


def test_the_example_of_every_command_is_a_call_of_it() -> None:
    register_commands(app, "")
    assert {name for name in app if not name.startswith("-")} == {*COMMANDS}
    for name, example in (item for own in EXAMPLES.values() for item in own.items()):
        called = app.parse_args(shlex.split(example), exit_on_error=False, print_error=False)[0]
        assert called.__name__.rstrip("_") == name


def test_every_answer_says_what_is_lost(tmp_path: Path, ablate: Callable) -> None:
    found = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(4), **SMALL)
    assert "ablate: " not in ablate("table", "--campaign", tmp_path).err
    plan = found.layout.grid_trials("quickstart")
    plan.write_bytes(b"".join(plan.read_bytes().splitlines(keepends=True)[:7]))
    for words in ("table", "table --why SSA", "effects", "curves --by steps", "pareto --against loss"):
        assert "has 8 trials, and 7 can be read" in ablate(*words.split(), "--campaign", tmp_path).err
        told = json.loads(ablate(*words.split(), "--json", "--campaign", tmp_path).out)
        assert any("7 can be read" in said for said in told["warnings"]), words


NOWHERE = [f"{words} nowhere.py" for words in ("plan", "run", "prove", "operators --spec", "tasks --spec")]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["tabel"], 2, 'Did you mean "table"?'),
        (["judge"], 2, 'Did you mean "evaluate"?'),
        (["plan"], 2, "`ablate plan --help` says what it takes"),
        (["plan", "specs/quickstart.py", "--grid", "quickstrat"], 3, "it has 'quickstart'; did you mean 'quickstart'"),
        (["plan", "x.py", "--gird", "y"], 2, "Did you mean --grid"),
        *((words.split(), 3, "nowhere.py") for words in NOWHERE),
        (["run", "nowhere.py", "--on", "moon"], 2, "moon"),
        (["run", "nowhere.py", "--on", "inline", "--workers", "2"], 2, "--workers has no effect with --on inline"),
        (["run", "specs/quickstart.py", "--workers", "0"], 2, "--workers 0"),
        (["table", "--campaign", "nowhere"], 3, "no campaign in nowhere"),
        (["status", "--every", "2"], 2, "--every has no effect without --watch"),
        (["status", "--watch", "--failures"], 2, "--watch shows the whole campaign"),
        (["status", "--watch", "operator=SSA"], 2, "--watch shows the whole campaign"),
        (["check", "--rebuild", "--machine"], 2, "leave one out"),
        (["watch", "--evry", "2"], 2, "`ablate status --help`"),
    ],
)
def test_wrong_use_is_one_sentence_and_its_exit_code(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert execute(arguments) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("ablate: ")
    assert words in printed.err
    assert "Traceback" not in printed.err


def test_reading_commands_speak_json(campaign: Path, ablate: Callable) -> None:
    error = json.loads(ablate("status", "--json", "--campaign", "nowhere", code=3).out)["error"]
    assert error["code"] == 3
    assert "nowhere" in error["message"]
    for command in ("status", "table", "doctor"):
        answer = json.loads(ablate(command, "--json", "--campaign", campaign).out)
        assert answer["schema"] == f"ablate/{command}/1"
        assert answer["data"]
        if command == "table":
            assert {row["label"] for row in answer["data"]} == {"SSA", "Integral"}
            assert all(row["verdict"] and row["reason"] for row in answer["data"])


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("watch", ("status", "--watch")),
        ("failures", ("status", "--failures")),
        ("rebuild", ("check", "--rebuild")),
        ("doctor", ("check", "--machine")),
    ],
)
def test_an_earlier_name_prints_what_its_form_prints(
    name: str, form: tuple[str, ...], tmp_path: Path, ablate: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(2), **SMALL)
    monkeypatch.setattr("ablate.runners.monitoring.trial_locations.time.time", lambda: 2e9)  # `watch --json` has it
    for as_json in ([], ["--json"]):
        earlier, now = (ablate(*words, *as_json, "--campaign", tmp_path) for words in ((name,), form))
        assert (earlier.out, earlier.err) == (now.out, now.err)
        assert earlier.err == ""
        assert not as_json or json.loads(earlier.out)["schema"] == f"ablate/{name}/1"
    assert name not in COMMANDS


def test_the_report_is_where_it_says(campaign: Path, tmp_path: Path, ablate: Callable) -> None:
    printed = Path(ablate("report", "--campaign", campaign, "--out", tmp_path / "r.html").out.strip())
    assert printed == tmp_path / "r.html"
    assert "<html" in printed.read_text(encoding="utf-8")
    assert ablate("report", campaign, "--out", tmp_path / "p.html").out.strip() == str(tmp_path / "p.html")
    assert "leave one out" in ablate("report", campaign, "--campaign", campaign, code=2).err


def test_a_bug_is_called_one(monkeypatch: pytest.MonkeyPatch, ablate: Callable) -> None:
    monkeypatch.setattr("ablate.runners.cli.check.examine", lambda _: 1 / 0)
    assert "internal error, a bug in ablate: ZeroDivisionError" in ablate("check", "--machine", code=1).err
    with pytest.raises(ZeroDivisionError):
        execute(["check", "--machine", "--debug"])


def test_a_reader_that_goes_away_is_no_error(campaign: Path) -> None:
    query = "select repeat('x', 1000) from range(2000)"
    words = f'sql "{query}" --csv --campaign {campaign}'
    command = f"{sys.executable} -P -m ablate {words} | head -1; exit ${{PIPESTATUS[0]}}"
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, env=buffered)
    assert (result.returncode, result.stderr) == (0, "")


def test_the_only_campaign_is_found_and_several_are_named(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ablate: Callable
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "run a spec first" in ablate("status", code=3).err
    (tmp_path / "campaigns").mkdir()
    (tmp_path / "campaigns" / "one").symlink_to(campaign)
    ablate("status")
    (tmp_path / "campaigns" / "two").symlink_to(campaign)
    assert "campaigns/one, campaigns/two" in ablate("status", code=2).err


def test_every_command_is_in_the_readme_or_the_docs() -> None:
    texts = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    assert [name for name in COMMANDS if f"ablate {name}" not in texts] == []


def test_a_list_and_a_help_page_have_at_most_sixty_lines(monkeypatch: pytest.MonkeyPatch, ablate: Callable) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    lists = ("operators", "operators stages", "prove --laws", "published", "published --paper 003")
    for words in ("--help", *(f"{command} --help" for command in COMMANDS), *lists):
        assert len(ablate(*words.split()).out.splitlines()) <= 60, words
    for words in ("tasks", "probes"):  # in a process without those that other tests define
        result = subprocess.run([sys.executable, "-m", "ablate", words], capture_output=True, text=True, check=True)
        assert len(result.stdout.splitlines()) <= 60, words
