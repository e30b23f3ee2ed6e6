"""Logs of trials: what was written comes out once and in order, however many attempts there are and whoever waits."""

import io
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from submission_files import FIRST
from synthetic import Campaign, publish_grid, write_campaign, write_end, write_quickstart, write_start

from ablate.grid.errors import NotFoundError
from ablate.runners.attempts.worker_logs import worker_log
from ablate.runners.monitoring.logs import follow
from ablate.store.analysis.verdicts import verdicts
from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import AttemptState, TrialState, trial_state
from ablate.store.store import Store


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    made = write_campaign(tmp_path, operators=("softmax", "SSA"), seeds=range(2), pending={("SSA", 0), ("SSA", 1)})
    (tmp_path / "trials").mkdir(exist_ok=True)
    return made


def key_of(campaign: Campaign, seed: int = 0) -> str:
    return str(campaign.line("SSA", seed)["trial"])


def begin(campaign: Campaign, attempt: int, text: str = "", **fields: object) -> None:
    write_start(campaign.layout, key_of(campaign), attempt, **fields)
    append(campaign.layout, key_of(campaign), attempt, text)


def append(layout: Layout, key: str, attempt: int, text: str) -> None:
    with layout.log(key, attempt).open("a") as log:
        log.write(text)


@pytest.fixture
def logs(campaign: Campaign, ablate: Callable) -> Callable:
    return lambda *words, code=0: ablate("logs", *words, "--campaign", campaign.root, code=code)


def test_the_log_of_an_attempt_is_shown(campaign: Campaign, logs: Callable) -> None:
    key = key_of(campaign)
    begin(campaign, 1)
    assert logs(key).err.endswith("ablate: it has written nothing so far\n")
    append(campaign.layout, key, 1, "first\n")
    write_end(campaign.layout, key, 1, status="failed", reason="error")
    begin(campaign, 2, "second é\n", place={"scheduler": "slurm", "job": "7_3", "node": "n4"})
    said = logs(key[:9])
    assert said.out == "second é\n"
    assert said.err == "ablate: attempt 2 on n4, job 7_3: running\n"
    said = logs("operator=SSA", "seed=0", "--attempt", "1")
    assert said.out == "first\n"
    assert "attempt 1" in said.err
    assert "failed (error)" in said.err
    assert "".join(text for _, text in follow(campaign.layout, key, 1)) == "first\n"


def test_how_far_an_attempt_came_is_said_behind_its_log(tmp_path: Path, ablate: Callable) -> None:
    made = write_quickstart(tmp_path)
    done, other = made.lines[0]["trial"], made.lines[1]["trial"]
    with Store.open(tmp_path) as store:
        measure, steps = made.header["measure"], made.lines[0]["spec"]["training"]["steps"]
        value = store.final("quickstart", measure["name"], measure["point"]).filter(trial=done)["value"].item()
        last = "FROM v_metric WHERE trial = $key AND name = 'loss' ORDER BY step DESC"
        loss = store.sql(last, {"key": done})["value"][0]
    said = ablate("logs", done, "--campaign", tmp_path).err.splitlines()[-1]
    assert f"trial done; attempt 1: step 60 of {steps}, last loss {loss:.4g}, {measure['name']}" in said
    assert said.endswith(f" {value:.4g}")
    assert ablate("logs", done, "--follow", "--campaign", tmp_path).err.splitlines()[-1] == said
    write_end(made.layout, other, 1, status="stopped", message="its time\nwas up", step=40)
    append(made.layout, other, 1, "some text\n")
    said = ablate("logs", other, "--campaign", tmp_path)
    assert said.out == "some text\n"
    last = said.err.splitlines()[-1]
    assert "trial stopped" in last
    assert last.endswith("ended: its time was up")


def test_several_trials_are_named_in_the_order_of_the_plan(tmp_path: Path, ablate: Callable) -> None:
    rates = [0.01, 0.003, 0.001]
    campaign = write_campaign(tmp_path / "c", operators=("softmax", "SSA"), seeds=(3,), factors={"lr": rates})
    planned = campaign.lines
    named = ", ".join(f"{line['trial'][:8]} {line['label']} seed 3" for line in planned)
    assert named in ablate("logs", "seed=3", "--campaign", tmp_path / "c", code=2).err
    cells = ", ".join(repr(line["label"]) for line in planned)
    with Store.open(tmp_path / "c") as store, pytest.raises(NotFoundError, match=cells):
        verdicts(store, "quickstart", baseline="Cog")
    publish_grid(campaign.layout, campaign.header, planned[::-1])  # executed in another order
    assert named in ablate("logs", "seed=3", "--campaign", tmp_path / "c", code=2).err


def test_what_is_not_there_is_one_sentence(campaign: Campaign, logs: Callable) -> None:
    key = key_of(campaign)
    begin(campaign, 1, "text")
    placed = campaign.line("softmax", 0)["trial"]
    write_start(campaign.layout, placed, 2, submission=FIRST, place={"scheduler": "slurm", "job": "7_3", "node": "n4"})
    for words, code, says in (
        (["ffffffff"], 3, "no beginning of a key"),
        ([key_of(campaign, 1)], 3, "it has not started"),
        ([key, "--worker"], 3, "did not run on a cluster"),
        ([placed, "--worker"], 3, "job 7_3 of attempt 2 has left no output"),
        ([key, "--worker", "-f"], 2, "--follow and --worker"),
        (["operator=SSA"], 2, f"2 trials fit 'operator=SSA': {key[:8]} SSA seed 0, {key_of(campaign, 1)[:8]} SSA"),
    ):
        said = logs(*words, code=code)
        assert says in said.err
        assert (said.err.count("\n"), said.out) == (1, "")
    path = worker_log(campaign.layout, FIRST, "7_3")
    path.parent.mkdir(parents=True)
    path.write_text("slurmstepd: something\n")
    assert logs(placed, "--worker").out == "slurmstepd: something\n"


def test_following_reads_every_byte_once_over_all_attempts(campaign: Campaign) -> None:
    """A writer thread appends while the follower reads; the follower ends by itself with the trial."""
    layout, key = campaign.layout, key_of(campaign)
    begin(campaign, 1, "0\n")
    seen = io.StringIO()
    announced: list[int] = []
    grown = threading.Event()

    def read() -> None:
        for attempt, text in follow(layout, key, None):
            if attempt is not None:
                announced.append(attempt.attempt)
            seen.write(text)
            grown.set()

    def reaches(text: str) -> None:
        while text not in seen.getvalue():
            assert grown.wait(30), f"never read {text!r}"
            grown.clear()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    for number in range(1, 6):
        append(layout, key, 1, f"{number}\n")
        if number % 2:
            reaches(f"{number}\n")
    append(layout, key, 1, "last of the first\n")  # nobody waits for this one: the next attempt is there already
    write_end(layout, key, 1, status="stopped")
    begin(campaign, 2, "second\n")
    reaches("second\n")
    append(layout, key, 2, "end\n")
    write_end(layout, key, 2)
    reader.join(30)
    assert not reader.is_alive()
    assert seen.getvalue() == "0\n1\n2\n3\n4\n5\nlast of the first\nsecond\nend\n"
    assert announced == [1, 2]


def test_the_last_lines_of_an_attempt_are_read(campaign: Campaign, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(campaign, 1, "first\n")
    begin(campaign, 2, "second\n")
    write_end(campaign.layout, key_of(campaign), 2)
    read = trial_state

    def state_then_text(layout: Layout, trial: str) -> TrialState:
        state = read(layout, trial)
        append(layout, trial, 1, "late\n")
        return state

    def find_first(layout: Layout, trial: str, _: object) -> AttemptState:
        monkeypatch.setattr("ablate.runners.monitoring.logs.trial_state", state_then_text)
        return read(layout, trial).attempts[0]

    monkeypatch.setattr("ablate.runners.monitoring.logs.find_attempt", find_first)
    assert "".join(text for _, text in follow(campaign.layout, key_of(campaign), None)).startswith(
        "first\nlate\nsecond\n"
    )


@pytest.mark.parametrize("follows", [[], ["-f"]])
def test_a_log_is_shown_and_not_obeyed(
    campaign: Campaign, logs: Callable, tmp_path_factory: pytest.TempPathFactory, follows: list[str]
) -> None:
    """No link leads a log out of the campaign."""
    begin(campaign, 1, "\x1b]0;title\x07\x1b[2J\u202eab\r\n")
    write_end(campaign.layout, key_of(campaign), 1)
    assert logs(key_of(campaign), *follows).out == "\\u001b]0;title\\u0007\\u001b[2J\\u202eab\n"
    secret = tmp_path_factory.mktemp("other") / "secret"
    secret.write_text("secret words")
    path = campaign.layout.log(key_of(campaign), 1)
    path.unlink()
    path.symlink_to(secret)
    said = logs(key_of(campaign), *follows, code=6)
    assert "secret words" not in said.out
    assert "leads out of the campaign" in said.err
