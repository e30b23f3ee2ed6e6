"""Programs as trials: their seeds and their code, and whole campaigns of them, in real processes."""

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from program_scripts import LASTING, Script, trained
from warm import warm_server

from ablate import Command
from ablate.grid import Grid, Measure, over
from ablate.runners.attempts.run_request import RunRequest
from ablate.runners.execution import Inline, Local
from ablate.runners.execution.run import RunResult, run_campaign
from ablate.runners.provenance.code import Codes
from ablate.store import Campaign
from ablate.store.files.layout import Layout
from ablate.store.store import Store

# Seeds:


DRAWS = """
import random, sys
if "--numpy" in sys.argv:
    import numpy
print("python", random.random())
random.seed(7)
print("seeded", random.random())
random.seed("a text")
print("text", random.random())
if "--numpy" in sys.argv:
    print("numpy", numpy.random.rand())
    numpy.random.seed(7)
    print("numpy_seeded", numpy.random.rand())
    print("generator", numpy.random.default_rng(7).random())
    numpy.random.seed([7, 8])
    print("array", numpy.random.rand())
if "--torch" in sys.argv:
    import torch
    print("torch", torch.rand(()).item())
    torch.manual_seed(1337)
    print("torch_seeded", torch.rand(()).item())
    torch.random.manual_seed(1337)
    print("torch_again", torch.rand(()).item())
"""
_NAMES = "python seeded text numpy numpy_seeded generator array torch torch_seeded torch_again"
DRAWN = [rf"^{name} (?P<{name}>\S+)" for name in _NAMES.split()]


def draws(command: Command, context: Any, place: Path) -> dict[str, float]:
    trained(command, context, place)
    return {name: value for (_, name), (value, *_) in context.evaluations.items()}


def test_the_seed_reaches_a_program_that_has_no_option_for_it(script: Script, memory: Any, tmp_path: Path) -> None:
    command = script(DRAWS, "--numpy", "--torch", evaluations=DRAWN)
    drawn = [draws(command.changed(seed=seed), memory(), tmp_path / f"{at}") for at, seed in enumerate((0, 1, 2, 1))]
    assert len(drawn[0]) == 10
    assert drawn[1] == drawn[3]
    for name in drawn[0]:
        assert len({each[name] for each in drawn}) == 3, name
    assert drawn[1]["torch_seeded"] == drawn[1]["torch_again"]
    by_hand = subprocess.run(
        [sys.executable, "code/train.py", "--numpy", "--torch"], capture_output=True, text=True, check=True
    ).stdout
    plain = {line.split()[0]: float(line.split()[1]) for line in by_hand.splitlines()}
    for name in ("seeded", "text", "numpy_seeded", "generator", "array", "torch_seeded", "torch_again"):
        assert drawn[0][name] == plain[name], name  # seed 0 leaves the program's own seeds


def test_a_seed_function_at_work_in_one_thread_does_not_keep_the_seed_from_another(
    script: Script, memory: Any, tmp_path: Path
) -> None:
    text = """
    import random, sys, threading
    entered, go = threading.Event(), threading.Event()
    class Slow:
        def __index__(self):
            entered.set()
            go.wait()
            return 3
    other = threading.Thread(target=random.seed, args=[Slow()])
    if "--both" in sys.argv:
        other.start()
        entered.wait()
    random.seed(7)
    print("seeded", random.random())
    go.set()
    """
    commands = [script(text, *more, evaluations=r"seeded (?P<seeded>\S+)", seed=1) for more in ([], ["--both"])]
    alone, both = (draws(each, memory(), tmp_path / f"{at}") for at, each in enumerate(commands))
    assert alone == both


def test_a_program_that_takes_the_seed_is_left_alone(script: Script, memory: Any, tmp_path: Path) -> None:
    command = script(DRAWS, "{seed}", evaluations=DRAWN)
    first, second = (draws(command.changed(seed=seed), memory(), tmp_path / f"{seed}") for seed in (1, 2))
    assert first["seeded"] == second["seeded"]
    assert first["python"] != second["python"]


def test_the_users_own_sitecustomize_runs_in_programs_that_the_program_starts_too(
    script: Script, memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.mine = 41\n", encoding="utf-8")
    text = """
    import random, subprocess, sys
    print("mine", mine)
    subprocess.run([sys.executable, "-c", "import random; print('inner', mine, random.random())"])
    """
    command = script(text, evaluations=[r"mine (?P<mine>\d+)", r"inner (?P<inner>\d+) (?P<draw>\S+)"])
    monkeypatch.setenv("PYTHONPATH", str(own))
    drawn = [draws(command.changed(seed=seed), memory(), tmp_path / f"{seed}") for seed in (1, 2)]
    by_variable = command.changed(environment={"PYTHONPATH": str(own)}, seed=1)
    monkeypatch.delenv("PYTHONPATH")
    assert draws(by_variable, memory(), tmp_path / "variable") == drawn[0]
    assert [(each["mine"], each["inner"]) for each in drawn] == [(41, 41), (41, 41)]
    assert drawn[0]["draw"] != drawn[1]["draw"]


# Code:


def test_the_code_of_a_program_is_its_script_and_the_local_files_it_uses(script: Script, tmp_path: Path) -> None:
    text = """
    import json
    import model
    from package import part
    exec(open("settings.py").read())
    """
    command = script(text, "conf/a.yaml", "--file=conf/b.json", "{directory}")
    code = tmp_path / "code"
    files = {
        "model.py": "from package.other import deep",
        "settings.py": "a = 1",
        "package/__init__.py": "",
        "package/part.py": "from . import more",
        "package/more.py": "",
        "package/other.py": "deep = 1",
        "conf/a.yaml": "a: 1",
        "conf/b.json": "{}",
        "unused.py": "",
    }
    for name, content in files.items():
        (code / name).parent.mkdir(exist_ok=True)
        (code / name).write_text(content, encoding="utf-8")
    before = Codes().sources(command)
    named = {name.removeprefix("file ") for name in before if name.startswith("file ")}
    assert named == {"train.py", *files} - {"unused.py"}
    for name in named:
        kept = (code / name).read_text(encoding="utf-8")
        (code / name).write_text(kept + "\nb = 2\n", encoding="utf-8")
        after = Codes().sources(command)
        assert {each for each in after if after[each] != before.get(each)} == {f"file {name}"}
        (code / name).write_text(kept, encoding="utf-8")
    (code / "train.py").write_text("# a comment\n" + textwrap.dedent(text), encoding="utf-8")
    assert Codes().sources(command) == before


def test_a_shell_script_counts_with_the_scripts_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.sh").write_text("python train.py --fast\n", encoding="utf-8")
    (tmp_path / "train.py").write_text("import model", encoding="utf-8")
    (tmp_path / "model.py").write_text("", encoding="utf-8")
    names = Command(argv=["sh", "run.sh"]).other_code()
    assert set(names) == {"file run.sh", "file train.py", "file model.py"}


# Whole campaigns:


def campaign(root: Path, base: Command, machine: Inline | Local | None = None, seeds: int = 2) -> RunResult:
    grid = Grid(
        name="programs",
        base=base,
        axes=[over("fields.lr", [0.1, 0.3])],
        seeds=range(seeds),
        baseline={"lr": 0.1},
        measure=Measure(name="loss", scale="linear"),
    )
    request = RunRequest(root, land_every_s=None, progress=False)
    return run_campaign(root, [grid], machine or Inline(), request)


def values_of(root: Path) -> list[tuple[Any, ...]]:
    with Store.open(root) as store:
        query = (
            "SELECT label, seed, step, value FROM v_metric JOIN grid_trial USING (trial) WHERE name = $n ORDER BY ALL"
        )
        return store.sql(query, {"n": "loss"}).rows()


def test_killed_and_interrupted_workers_leave_the_results_of_undisturbed_ones(script: Script, tmp_path: Path) -> None:
    deaths = tmp_path / "deaths"
    deaths.touch()
    base = script(
        LASTING,
        "{lr}",
        "{directory}",
        str(deaths),
        fields={"lr": 0.1},
        metrics=r"step (?P<step>\d+) loss (?P<loss>\S+)",
        checkpoint="state.txt",
        resume="--resume",
        steps=12,
    )
    assert campaign(tmp_path / "straight", base).done == 4
    deaths.write_text("5 SIGKILL\n7 SIGTERM\n", encoding="utf-8")
    while (result := campaign(tmp_path / "broken", base, Local(2, start=warm_server))).stopped:
        assert result.failed == 0
    assert deaths.read_text(encoding="utf-8") == ""
    assert values_of(tmp_path / "broken") == values_of(tmp_path / "straight")
    layout = Layout(tmp_path / "broken")
    assert sum(len(layout.attempts(key)) for key in layout.trial_keys()) > 4
    for key in layout.trial_keys():  # the last attempt ended by itself; a killed worker may have read nothing
        assert "step 12 loss" in layout.log(key, max(layout.attempts(key))).read_text(encoding="utf-8")


@pytest.mark.parametrize("draw", ["0.5", "random.random()"])
def test_two_seeds_with_equal_values_give_no_verdict(draw: str, script: Script, tmp_path: Path) -> None:
    text = f"""
    import random, sys
    for step in range(1, 4):
        print(step, float(sys.argv[1]) * step + {draw})
    print(4, 1.0)
    """
    base = script(text, "{lr}", fields={"lr": 0.1}, metrics=r"(?P<step>\d+) (?P<loss>\S+)")
    assert campaign(tmp_path / "campaign", base, seeds=3).done == 6
    (row,) = Campaign(tmp_path / "campaign").compare().filter(label="lr=0.3").select("verdict", "reason").rows()
    assert row[0] == "no verdict"
    assert ("seeds 0 and 1" in row[1]) == (draw == "0.5")


def test_one_fault_leaves_the_other_trials_and_is_one_group(script: Script, tmp_path: Path) -> None:
    text = """
    import os, sys
    print("loss", os.environ["ABLATE_SEED"])
    sys.exit(3 if sys.argv[1] == "0.3" else 0)
    """
    base = script(text, "{lr}", fields={"lr": 0.1}, metrics=r"loss (?P<loss>\S+)")
    result = campaign(tmp_path / "campaign", base, seeds=3)
    assert (result.done, result.failed) == (3, 3)
    (group,) = Campaign(tmp_path / "campaign").failures("programs").select("reason", "n", "traceback").rows()
    assert (group[:2], group[2].split()[0]) == (("error", 3), "loss")
