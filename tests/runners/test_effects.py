"""`ablate effects`, `curves` and `pareto` on campaigns that no training made."""

import json
from pathlib import Path

import pytest
from synthetic import write_campaign, write_start

from runners.cli.app import execute

FACTORS = {"gate": ("head", "constant", "layer")}


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("campaign")
    write_campaign(root, operators=("softmax", "SSA"), factors=FACTORS, failed={("SSA · head", 1): "diverged"})
    return root


def test_every_axis_has_a_row_and_what_is_left_out_is_said(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["effects", "--campaign", str(campaign)]) == 0
    said = capsys.readouterr()
    assert [line.split()[0] for line in said.out.splitlines()[2:4]] == ["operator", "gate"]
    assert "operator × gate" not in said.out
    assert said.err == "ablate: 1 of 30 planned runs are left out: 1 failed\n"
    assert execute(["effects", "--interactions", "--campaign", str(campaign)]) == 0
    assert "SSA × constant" in capsys.readouterr().out


def test_programs_get_json_with_all_digits_and_csv(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["effects", "--json", "--interactions", "--campaign", str(campaign)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "ablate/effects/1"
    assert [row["term"] for row in found["data"]["terms"]] == ["operator", "gate", "operator × gate"]
    assert found["data"]["half_normal"] is None
    assert found["warnings"] == ["1 of 30 planned runs are left out: 1 failed"]
    assert execute(["effects", "--csv", "--campaign", str(campaign)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("term,order,df,df_error,f,p,p_holm,omega_squared")
    assert len(lines) == 3


def test_the_first_seed_alone_has_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seeds run in order, so this is the state of every campaign at first: a ranking."""
    labels = [f"{operator} · {gate}" for operator in ("softmax", "SSA") for gate in FACTORS["gate"]]
    later = [(label, seed) for label in labels for seed in range(1, 5)]
    write_campaign(tmp_path, operators=("softmax", "SSA"), factors=FACTORS, pending=later, noise=0.001)
    assert execute(["effects", "--campaign", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert "no verdict is drawn" in said.out
    assert "p (Holm)" not in said.out
    assert "preliminary: 24 of 30 planned runs outstanding" in said.err
    assert "Lenth's pseudo standard error" in said.out
    assert execute(["effects", "--json", "--campaign", str(tmp_path)]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert (len(data["half_normal"]["contrasts"]), data["terms"]) == (5, [])


def test_a_grid_without_results_or_axes_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_campaign(tmp_path, operators=("softmax",), seeds=range(2))
    assert execute(["effects", "--campaign", str(tmp_path)]) == 0
    assert "no axis of this grid varies" in capsys.readouterr().out
    assert execute(["effects", "--campaign", str(tmp_path), "--grid", "quikstart"]) == 3
    assert "did you mean 'quickstart'" in capsys.readouterr().err


def test_curves_and_pareto_sets_answer_on_a_terminal(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["curves", "--by", "steps", "--level", "0.3", "--csv", "--campaign", str(campaign)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cell,label,question,at,pairs")
    assert len(lines) == 1 + 3 * 5
    assert execute(["curves", "--campaign", str(campaign)]) == 3
    assert "compare by steps or seconds" in capsys.readouterr().err
    for budget in ("-5", "nan", "1e30"):
        assert execute(["curves", "--by", "steps", "--budget", budget, "--campaign", str(campaign)]) == 2
        assert "first and the last recorded cost, 0 and 59; got" in capsys.readouterr().err
    assert execute(["pareto", "--against", "loss", "--campaign", str(campaign)]) == 0
    assert "standing" in capsys.readouterr().out
    assert execute(["pareto", "--against", "los", "--campaign", str(campaign)]) == 3
    assert "did you mean 'loss'" in capsys.readouterr().err


def test_curves_and_pareto_sets_say_how_they_are_judged(campaign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["curves", "--by", "steps", "--campaign", str(campaign)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("quickstart: loss at equal steps, lower is better")
    assert "Holm over 5 cells of a question, alpha 0.05" in lines[1]
    assert "95 % from" in lines[2]
    assert execute(["pareto", "--against", "loss", "--against", "parameters", "--campaign", str(campaign)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("against loss (lower is better), parameters (lower is better)")
    assert "alpha 0.05: Holm over 30 ordered pairs (dominated), over 6 cells (on the front)" in lines[1]
    assert "not told apart from" in lines[2]


@pytest.mark.parametrize("command", ["curves", "pareto"])
def test_mixed_code_is_told_beside_costs(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(3))
    other = {"code": "beef" * 10, "sources": {"core": "other"}}
    write_start(written.layout, written.line("SSA", 0)["trial"], 1, **other)
    wanted = ["--by", "steps"] if command == "curves" else ["--against", "loss"]
    assert execute([command, *wanted, "--campaign", str(tmp_path)]) == 0
    assert "mix versions of the code" in capsys.readouterr().err
