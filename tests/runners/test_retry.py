"""Once more: exactly the trials that were meant, never blindly, and where they were the last time."""

import json
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from definitions import forgotten
from pretend_slurm import PretendSlurm
from real_spec import STUMBLING, real_spec
from submission_files import FIRST, SECOND, SMALL, WAITS, Scripted, submit
from synthetic import Campaign, write_campaign, write_end, write_start

from ablate.grid.errors import NotFoundError, SpecError
from ablate.runners.attempts.submission_record import read_submission_record
from ablate.runners.cli.app import execute
from ablate.runners.cli.retry import choose, last_submission, spec_of
from ablate.runners.monitoring.trial_locations import locate_trials
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.files.trust import trust
from ablate.store.store import Store

SPEC = real_spec(
    "tried",
    training="steps=3",
    operators='softmax(), softmax().changed(score=Stumbling(), name="stumbling")',
    before=STUMBLING,
)


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a spec file and its campaign, in which softmax is done and `stumbling` has failed."""
    place = tmp_path_factory.mktemp("failed")
    (place / "tried.py").write_text(SPEC)
    (place / "stumble").touch()
    with forgotten():
        words = ["run", str(place / "tried.py"), "--on", "inline", "--campaign", str(place / "campaign")]
        assert execute(words) == 4
    return place


@pytest.fixture
def failed_run(failed: Path, tmp_path: Path) -> tuple[Path, Path]:
    (failed / "stumble").unlink(missing_ok=True)
    root = Path(shutil.copytree(failed / "campaign", tmp_path / "campaign"))
    trust(Layout(root), "code")
    return failed / "tried.py", root


def attempts(root: Path) -> dict[str, list[str]]:
    layout = Layout(root)
    lines = map(json.loads, layout.grid_trials("tried").read_text().splitlines())
    return {
        f"{line['label']} {line['seed']}": [
            str(found.end and found.end["status"]) for found in trial_state(layout, line["trial"]).attempts
        ]
        for line in lines
    }


def test_chosen_failures_are_trained_again(failed_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    _, root = failed_run
    ends = (("softmax", "ok"), ("stumbling", "failed"))
    expected = {f"{label} {seed}": [end] for label, end in ends for seed in range(3)}
    assert attempts(root) == expected
    capsys.readouterr()
    here = ["--campaign", str(root)]
    assert execute(["retry", *here]) == 2
    assert attempts(root) == expected
    layout = Layout(root)
    (first,) = layout.submission_ids()
    assert execute(["retry", "seed=1", "--failed", *here]) == 0
    assert attempts(root) == {**expected, "stumbling 1": ["failed", "ok"]}
    (second,) = set(layout.submission_ids()) - {first}
    manifest = map(json.loads, layout.manifest(second).read_text().splitlines())
    assert [(line["label"], line["seed"]) for line in manifest] == [("stumbling", 1)]
    assert len(layout.grid_trials("tried").read_text().splitlines()) == 6  # the grid is planned as it was
    assert execute(["retry", "--failed", *here]) == 0
    assert attempts(root) == {name: ends if "softmax" in name else ["failed", "ok"] for name, ends in expected.items()}
    capsys.readouterr()
    assert execute(["retry", "--failed", "--lost", *here]) == 0
    assert capsys.readouterr().out == "no trial is failed or lost\n"
    assert execute(["retry", "softmax", *here]) == 3
    assert "none of these trials is to be trained again: 3 done" in capsys.readouterr().err


def test_a_grid_that_release_0_1_0_planned_with_overrides_keeps_its_name(failed_run: tuple[Path, Path]) -> None:
    _, root = failed_run
    layout = Layout(root)
    path = layout.grid_header("tried")
    path.write_text(json.dumps({**json.loads(path.read_text()), "overrides": ["training.steps=3"]}))
    assert execute(["retry", "seed=1", "--failed", "--campaign", str(root)]) == 0
    assert [*layout.grid_names()] == ["tried"]


def test_what_was_asked_of_this_machine_is_asked_again(
    failed_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, root = failed_run
    monkeypatch.chdir(path.parent)
    here = ["retry", "seed=1", "--failed", "--campaign", str(root), "--on", "inline"]
    assert execute([*here, "--oom", "bigger"]) == 2
    assert '"halve"' in capsys.readouterr().err  # one of the choices
    (path.parent / "stumble").touch()
    layout = Layout(root)
    for words, oom in ((["--oom", "halve"], "halve"), ([], "halve")):
        before_it = set(layout.submission_ids())
        assert execute([*here, *words]) == 4
        (submission,) = set(layout.submission_ids()) - before_it
        record = read_submission_record(layout, submission)
        assert (record.machine, record.job["oom"], record.job["specs"]) == ("inline", oom, [str(path)])


def test_a_retry_on_a_cluster_is_followed_to_its_end_and_counts_its_own_trials(
    failed_run: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nobody runs the jobs of this cluster; between two looks their trials are trained here, and those of others."""
    spec, root = failed_run
    sleep, looks = time.sleep, list[int]()

    def train_once(seconds: float) -> None:
        looks.append(0 if looks else execute(here))
        sleep(0.05)

    slurm = PretendSlurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", slurm.path)
    words = ["retry", "seed=1", "--failed", "--campaign", str(root)]
    here = ["run", str(spec), "--retry", "--on", "inline", "--campaign", str(root)]
    monkeypatch.setattr(
        "ablate.runners.monitoring.watch.time", SimpleNamespace(monotonic=time.monotonic, sleep=train_once)
    )
    code = execute([*words, "--on", "slurm", "--gpus", "0", "--time", "1h", "--wait"])
    said = capsys.readouterr().err
    assert (code, looks[0]) == (0, 0), said
    assert "queued 1 trial on 1 worker" in said
    assert "1 trained; results in" in said
    assert attempts(root)["stumbling 1"] == ["failed", "ok"]
    assert attempts(root)["stumbling 0"] == ["failed", "ok"]


SSA = [("SSA", seed) for seed in range(4)]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """softmax is done; SSA 0 is lost, 1 failed, 2 has not begun, 3 is queued."""
    made = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(4), pending=set(SSA), **SMALL)
    keys = [made.line(*trial)["trial"] for trial in SSA]
    write_start(made.layout, keys[0], 1, pid=1, pid_started=1, submission=FIRST)
    write_start(made.layout, keys[1], 1, submission=FIRST)
    write_end(made.layout, keys[1], 1, status="failed", reason="out_of_memory", message="m")
    submit(made, SSA[3:], submission=SECOND)
    return made


def test_what_is_chosen_is_what_nobody_has(campaign: Campaign, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(campaign.root) as store:
        where = locate_trials(store, Scripted({"7_0": WAITS}))
    lost, failed, pending, queued = (campaign.line(*trial)["trial"] for trial in SSA)
    done = campaign.line("softmax", 0)["trial"]
    assert choose(where, None, ["lost"]) == {lost}
    assert choose(where, None, ["failed"]) == {failed}
    assert choose(where, None, ["failed", "lost"]) == {failed, lost}
    assert choose(where, [lost, failed, pending, queued, done], []) == {lost, failed, pending}
    assert "left out of these trials: 1 queued, 1 done" in capsys.readouterr().err
    with pytest.raises(NotFoundError, match="1 queued"):
        choose(where, [queued], [])
    with pytest.raises(NotFoundError, match="1 lost"):
        choose(where, [lost], ["failed"])


def test_the_machine_and_the_spec_are_those_of_the_last_submission(campaign: Campaign) -> None:
    keys = [campaign.line(*trial)["trial"] for trial in SSA]
    record = submit(campaign, SSA, slurm={"partition": "gpu", "time": "2h"}, job={"specs": ["/home/me/tried.py"]})
    last = last_submission(campaign.layout, keys[:2])
    assert last == record
    assert [spec_of(last, path) for path in (None, Path("other.py"))] == [Path("/home/me/tried.py"), Path("other.py")]
    assert last_submission(campaign.layout, [campaign.line("softmax", 0)["trial"]]) is None
    with pytest.raises(SpecError, match="name it with --spec FILE"):
        spec_of(None, None)
