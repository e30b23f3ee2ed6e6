"""`ablate published`: the papers' tables need no campaign; a comparison says what it left out."""

import csv
import io
import json
from collections import Counter
from pathlib import Path

import pytest

from ablate.runners.cli.app import execute


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[str, str]:
    assert execute(["published", *words]) == 0
    found = capsys.readouterr()
    return found.out, found.err


def test_programs_get_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = told(capsys, "--metric", "mse", "--json")
    data = json.loads(out)["data"]
    assert len(data) == 140 + 140
    assert data[0]["point"] == {"sigma_x": 1, "sigma_f": 1}
    out, _ = told(capsys, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == 1255
    assert json.loads(rows[0]["setup"]) == {}
    assert out.count("\n") == 1256


def test_a_table_has_the_rows_and_columns_of_the_paper(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for paper in ("000", "002", "003", "004"):
        cells = json.loads(told(capsys, paper, "--json")[0])["data"]
        for table in dict.fromkeys(cell["paper_table"] for cell in cells):
            out, _ = told(capsys, paper, table)
            assert max(map(len, out.splitlines())) <= 80
            printed = " ".join(cell["printed"] for cell in cells if cell["paper_table"] == table)
            assert Counter(printed.split()) <= Counter(out.split())
    lines = told(capsys, "003", "T1")[0].splitlines()
    assert len(lines) < 40
    assert next(line.split() for line in lines if line.startswith("Softmax")) == SOFTMAX
    for words, fewest in (((), 38), (("003",), 6), (("--metric", "accuracy"), 3)):
        assert fewest < len(told(capsys, *words)[0].splitlines()) <= 60


SOFTMAX = ["Softmax", "8e-5", "3e-4", "6e-3", "0.42", "1.62", "3.84", "9.42", "13.51", "27.99", "45.35"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--paper", "005"), 3, "there is no paper '005'; there are 000 Affine-Scaled Attention; 001"),
        (("004", "T15"), 3, "paper 004 has no table 'T15' of values; there are T1, T2, T3"),
        (("--metric", "msee"), 3, "did you mean 'mse'?"),
        (("--csv", "--json"), 2, "one format; got --json and --csv"),
        (("--grid", "mine"), 2, "add --compare"),
        (("001",), 3, "paper 001 has no table of values: Principled Attention publishes no results"),
        (("--compare", "--campaign", "nowhere"), 3, "there is no campaign in nowhere"),
    ],
)
def test_what_is_not_there_is_said_in_a_sentence(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    assert execute(["published", *words]) == code
    assert said in capsys.readouterr().err


def test_a_comparison_counts_what_it_leaves_out(capsys: pytest.CaptureFixture[str], compared: Path) -> None:
    words = ("--compare", "--campaign", str(compared))
    out, err = told(capsys, *words)
    assert "SSA against Softmax · 5" in out
    assert "of 527 claims: 2 same direction, 1 differs, 1 within noise, 523 not comparable" in err
    everything, _ = told(capsys, *words, "--all")
    assert everything.count("\n") > 527 > out.count("\n")
    found, _ = told(capsys, *words, "--json")
    assert len(json.loads(found)["data"]) == 527


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from published_campaign import mse, planted

    from ablate.variants import softmax, ssa

    root = tmp_path_factory.mktemp("compared")
    effects = {1: -1.0, 3: 1.0, 5: -1.0, 10: 0.0}
    values = {
        "plain": [mse(seed, dict.fromkeys(effects, 0.0)) for seed in range(5)],
        "mine": [mse(3 * seed + 1, effects) for seed in range(5)],
    }
    planted(root, {"plain": softmax(), "mine": ssa()}, values).close()
    return root
