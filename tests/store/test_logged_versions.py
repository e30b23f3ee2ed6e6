"""Which code made a logged run, and who starts it again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ablate.grid.errors import SpecError
from ablate.runners.cli.app import execute
from ablate.store import Campaign
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state


def test_results_of_several_versions_of_the_code_get_no_verdict_until_they_are_logged_again(tmp_path: Path) -> None:
    with Campaign(tmp_path, code="v1").grid("a", baseline="x", measure={"name": "mse"}) as before:
        log(before, "x")
        log(before, "y")
        assert before.compare()["verdict"].to_list() != ["no verdict"]
    with Campaign(tmp_path, code="v2") as after:
        assert not after.finished(label="y", seed=0)
        log(after, "y")
        assert after.finished(label="y", seed=0)
        told = after.compare().row(0, named=True)
        assert told["verdict"] == "no verdict"
        assert "2 versions of the code; train those of another version again" in told["reason"]
        log(after, "x")
        assert after.refresh().compare()["verdict"].to_list() != ["no verdict"]
        assert after.sql("SELECT DISTINCT code, versions->>'script' AS script FROM attempt ORDER BY ALL").height == 2
    assert Campaign(tmp_path).finished(label="y", seed=0)
    with pytest.raises(SpecError, match="code"):
        Campaign(tmp_path, code=2).start("a", label="x", seed=0)  # type: ignore[arg-type]


def log(campaign: Campaign, label: str) -> None:
    for seed in range(3):
        with campaign.start("a", label=label, seed=seed) as run:
            run.evaluate(1, "mse", seed + 1.0 + (label == "y"))


def test_logged_runs_are_for_their_own_program_to_start_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    campaign = Campaign(tmp_path)
    campaign.start("a", label="x", seed=0).fail(RuntimeError("out of memory"))
    dies = (
        f"import os; from ablate.store import Campaign; Campaign({str(campaign.root)!r}).start('a', label='x', seed=1)"
    )
    subprocess.run([sys.executable, "-c", f"{dies}; os._exit(1)"], check=False)

    def asked(*words: str) -> tuple[int, str]:
        code = execute([*words, "--campaign", str(campaign.root)])
        said = capsys.readouterr()
        return code, said.out + said.err

    for command in ("status", "failures", "retry"):
        assert "start your program that logged" in asked(command)[1]
        assert "`ablate retry" not in asked(command)[1]
    for words in (("--failed",), ("--lost",), ("x",)):
        code, said = asked("retry", *words)
        assert (code, said.count("\n")) == (3, 1)


def test_the_script_that_logs_is_recorded_with_its_hash(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    told = []
    for line in ("pass", "pass  # again"):
        body = "Campaign(sys.argv[1]).start('a', label='x', seed=0).finish()"
        script.write_text(f"import sys\nfrom ablate.store import Campaign\n{body}\n{line}\n", encoding="utf-8")
        subprocess.run([sys.executable, script, tmp_path / "mine"], check=True)
        state = trial_state(Layout(tmp_path / "mine"), next(Layout(tmp_path / "mine").trial_keys()))
        told.append(state.attempts[-1].start["versions"]["script"])
    assert len(set(told)) == 2
    assert all(re.fullmatch("train.py [0-9a-f]{12}", each) for each in told)
