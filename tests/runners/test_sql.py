"""The command `sql`: where a query comes from, what its result becomes, and what is refused."""

import io
import json
import signal
import subprocess
import threading
from pathlib import Path

import polars as pl
import pytest
from synthetic import write_campaign

from ablate.runners.cli.app import execute
from ablate.store.files.layout import Layout
from ablate.store.files.saved_texts import QUERIES


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    write_campaign(root, operators=("softmax", "SSA"), seeds=range(2), steps=4, sigma_f=(5,), sigma_x=(1,))
    return root


def ask(campaign: Path, *arguments: str) -> int:
    return execute(["sql", *arguments, "--campaign", str(campaign)])


QUERY = "select label, count(*) as n from grid_trial group by label order by label"


def test_a_query_may_come_from_the_line_a_file_stdin_or_the_campaign(
    campaign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "query.sql").write_text(f"-- per cell\n{QUERY};\n", encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.StringIO(QUERY))
    assert ask(campaign, "--save", "per-cell", QUERY) == 0
    assert capsys.readouterr().out == ""
    said = []
    for where in ([QUERY], ["-f", str(tmp_path / "query.sql")], ["-"], ["per-cell"]):
        assert ask(campaign, *where, "--csv") == 0
        said.append(capsys.readouterr().out)
    assert said == ["label,n\nSSA,2\nsoftmax,2\n"] * 4


def test_a_result_has_four_formats(campaign: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "new" / "result.parquet"
    rows = [("SSA", 2), ("softmax", 2)]
    assert ask(campaign, QUERY, "--json") == 0
    assert [tuple(row.values()) for row in json.loads(capsys.readouterr().out)["data"]] == rows
    assert ask(campaign, QUERY, "--parquet", str(file)) == 0
    assert capsys.readouterr().out.strip() == str(file)
    assert pl.read_parquet(file).rows() == rows
    assert ask(campaign, QUERY, "--md") == 0
    assert capsys.readouterr().out.splitlines()[1:] == ["| --- | --: |", "| SSA | 2 |", "| softmax | 2 |"]


def test_a_row_is_a_line_of_the_terminal_and_keeps_its_numbers(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    columns = "grid, cell, trial, label, 'a text of words' as why, seed, i + 0.123456 as x"
    many = f"select {columns} from grid_trial, range(20) t(i)"
    assert ask(campaign, many) == 0
    assert len(capsys.readouterr().out.splitlines()) == 81  # piped
    monkeypatch.setenv("COLUMNS", "80")
    assert ask(campaign, many) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 81
    assert max(map(len, lines)) <= 80
    assert {line.split()[-1] for line in lines[1:]} == {f"{at}.123456" for at in range(20)}
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert ask(campaign, many) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (len(lines), lines[-1]) == (52, "and 30 more rows; --csv has all")


def test_saved_queries_are_listed_and_replaced(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for query, words in (("select 1 as one", "saved; `ablate sql one` runs it"), ("select 2 as two", "replaced")):
        assert ask(campaign, "--save", "one", query) == 0
        assert words in capsys.readouterr().err
    assert ask(campaign, "--saved", "--json") == 0
    assert {"name": "one", "query": "select 2 as two"} in json.loads(capsys.readouterr().out)["data"]
    assert ask(campaign, "--saved") == 0
    assert "select 2 as two" in capsys.readouterr().out


def test_what_a_killed_writer_left_is_no_query(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert QUERIES.every(layout) == {}
    replaced = [QUERIES.save(layout, "a", query) for query in ("select 1", "select 1\n", "select 2")]
    assert replaced == [False, False, True]
    (tmp_path / "queries" / "a.sql.tmp.host.1.abc").write_text("sel")
    (tmp_path / "queries" / "Not a name.sql").write_text("select 3")
    assert QUERIES.every(layout) == {"a": "select 2\n"}


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["per-sell"], 3, "no saved query 'per-sell'"),
        (["--json", "--csv", "select 1"], 2, "--json and --csv are"),
        (["--json"], 2, "--json has no query"),
        ([], 2, "no terminal"),
        (["select 1", "-f", "x.sql"], 2, "one in x.sql"),
        (["-f", "nowhere.sql"], 3, "no file nowhere.sql"),
        (["--save", "Best of all", "select 1"], 2, "'Best of all' is no name of a saved query"),
        (["--save", "wrong", "selec 1"], 2, "Parser Error"),
        (["--save", "wrong"], 2, "--save has no query"),
        (["select 'infinity'::date as far"], 2, "'far' has a date outside the years 1 to 9999"),
        (["select * from read_csv('/etc/passwd')"], 2, "SQL"),
        (["--parquet", "", "select 1"], 2, "names no file"),
        (["select \udcff"], 2, "the query is not UTF-8 text"),
        (["--saved", "select 1"], 2, "--saved and a query"),
    ],
)
def test_wrong_use_is_one_sentence(
    arguments: list[str], code: int, words: str, campaign: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(campaign, *arguments) == code
    said = capsys.readouterr()
    assert words in said.err
    assert said.err.count("\n") == 1
    assert "wrong" not in QUERIES.every(Layout(campaign))


def test_ctrl_c_cancels_a_running_query(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    interrupting = threading.Timer(1.0, signal.raise_signal, [signal.SIGINT])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    interrupting.start()
    try:
        code = ask(campaign, "select sum(a.i * b.i) from range(100000000) a(i), range(100000000) b(i)")
    finally:
        signal.signal(signal.SIGINT, before)
    assert (code, *capsys.readouterr()) == (130, "", "ablate: interrupted; the same command goes on\n")


def test_harlequin_reads(campaign: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdout.fileno", lambda: 1, raising=False)
    monkeypatch.setattr("ablate.runners.cli.export.find_spec", lambda _: None)
    assert ask(campaign) == 5
    assert "pip install 'ablate[sql]'" in capsys.readouterr().err
    monkeypatch.setattr("ablate.runners.cli.export.find_spec", lambda name: name)
    monkeypatch.setattr(
        "ablate.runners.cli.export.subprocess.run",
        lambda command, **_: started.append(command) or subprocess.CompletedProcess(command, 0),
    )
    assert ask(campaign) == 0
    (command,) = started
    assert command[1:] == ["-m", "harlequin", "--read-only", str(Layout(campaign).snapshot)]
