"""Programs as trials: what fills them and what they report, as real processes."""

import json
import os
from pathlib import Path
from typing import Any, Literal

import pytest
from program_scripts import Script, trained

from ablate import Command, current_run
from ablate.grid import Experiment, Grid, SpecError, over
from ablate.runners.attempts.experiments import train_experiment
from ablate.runners.processes.training_context import Failed
from ablate.runners.programs import process

DUMP = """
    import json, os, sys
    with open(os.environ["ABLATE_METRICS"], "a") as file:
        print(json.dumps({"step": 1, "loss": 0.5}), file=file)
    with open(os.environ["ABLATE_DIRECTORY"] + "/seen.json", "w") as file:
        json.dump({"argv": sys.argv[1:], "cwd": os.getcwd(), "environment": dict(os.environ)}, file)
"""


def seen(command: Command, context: Any, place: Path) -> dict[str, Any]:
    """Return what a script that dumps it saw."""
    trained(command, context, place)
    read: dict[str, Any] = json.loads((place / "files" / "seen.json").read_text(encoding="utf-8"))
    return read


# Filling:


def test_fields_and_the_seed_fill_arguments_variables_and_a_file(script: Script, memory: Any, tmp_path: Path) -> None:
    command = script(
        DUMP,
        "--lr={lr}",
        "--flag={on}",
        "{off}",
        "--short={lr:.1f}",
        "--braces={{}}",
        "--out={directory}",
        "--seed={seed}",
        "--config={config}",
        fields={"lr": 1e-05, "on": True, "off": "", "size": [1, 2], "seed": "{seed}", "model": {"layers": 4}},
        environment={"LAYERS": "{size} of {lr}"},
        config="all.json",
        seed=3,
    )
    met = seen(command, memory(), tmp_path)
    place = tmp_path / "files"
    assert met["argv"] == ["--lr=1e-05", "--flag=True", "--short=0.0", "--braces={}", f"--out={place}", "--seed=3",
                           f"--config={place / 'all.json'}"]  # fmt: skip
    assert met["cwd"] == str(tmp_path / "code")
    assert met["environment"]["LAYERS"] == "[1, 2] of 1e-05"
    text = (place / "all.json").read_text(encoding="utf-8")
    expected = {"lr": 1e-05, "on": True, "off": "", "size": [1, 2], "seed": 3, "model": {"layers": 4}}
    assert json.loads(text) == expected
    assert '"lr": 1.0e-05' in text  # YAML takes 1e-05 for a text


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"argv": ["python", "train.py", "--lr={rate}"], "fields": {"lr": 1}}, "'lr'|rate"),
        ({"argv": ["python", "train.py"], "fields": {"lr": 1}}, "reaches no argument"),
        ({"argv": ["python", "train.py"], "fields": {"lr": 1}, "config": "a.json"}, "config"),
        ({"argv": ["python", "train.py", "{config}"]}, "config"),
        ({"argv": ["python", "train.py", "{lr}"], "fields": {"lr": 1}, "config": "a.json"}, "config"),
        ({"argv": ["python", "train.py", '{"lr": 1}']}, "braces"),
        ({"argv": ["python", "train.py", "{"]}, "braces"),
        ({"argv": ["python", "train.py", "{seed}"], "fields": {"seed": 1}}, "other than"),
        ({"argv": ["python", "train.py"], "resume": ["--again"]}, "checkpoint"),
        ({"argv": ["python", "train.py"], "checkpoint": "*.pt", "resume": ["{x}"]}, "x"),
        ({"argv": ["python", "train.py"], "metrics": r"loss (\S+)"}, "names no value"),
        ({"argv": ["python", "train.py"], "metrics": r"(?P<step>\d+)"}, "names no value"),
        ({"argv": ["python", "train.py"], "evaluations": r"(?P<loss>"}, "no regular expression"),
        ({"argv": ["python", "train.py"], "steps": "epochs"}, "epochs"),
        ({"argv": []}, "argv"),
    ],
)
def test_what_would_have_no_effect_is_refused_when_it_is_declared(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Command(**fields)


def test_axes_vary_entries_of_mappings(script: Script) -> None:
    base = script(DUMP, "{config}", config="a.yaml", fields={"lr": 0.1, "model": {"layers": 2, "width": 8}})
    grid = Grid(
        name="entries", base=base, axes=[over("fields.lr", [0.1, 0.2]), over("fields.model.layers", [2, 4])], seeds=[0]
    )
    trials = sorted(grid.trials(), key=lambda each: sorted(each.axes.items(), reverse=True))
    assert [dict(each.axes) for each in trials] == [
        {"lr": lr, "layers": layers} for lr in (0.1, 0.2) for layers in (2, 4)
    ]
    assert len({each.key for each in trials}) == 4
    assert trials[-1].trial.fields == {"lr": 0.2, "model": {"layers": 4, "width": 8}}
    assert trials[0].key == base.key
    again = type(base).model_validate(json.loads(json.dumps(trials[-1].trial.data())))
    assert (again.key, again) == (trials[-1].key, trials[-1].trial)
    for path in ("fields.learning_rate", "fields.model.depth", "fields.lr.more"):
        with pytest.raises(SpecError):
            [*Grid(name="entries", base=base, axes=[over(path, [1, 2])], seeds=[0]).trials()]


def test_the_key_has_no_place_and_data_give_the_place_back(script: Script, tmp_path: Path) -> None:
    command = script(DUMP)
    os.chdir(tmp_path / "code")
    assert Command(argv=["python", "train.py"]).key == command.key
    assert Command(argv=["python", str(tmp_path / "code" / "train.py")]).key == command.key
    os.chdir("/")
    assert Command.model_validate(command.data()).cwd == str(tmp_path / "code")
    assert command.changed(seed=1).cwd == str(tmp_path / "code")


# Reports:


def test_patterns_find_metrics_and_evaluations(script: Script, memory: Any, tmp_path: Path) -> None:
    text = r"""
    import sys
    for step, loss in enumerate(["1.5", "nan", "inf", "-Infinity"]):
        print(f"iter {step:,}: loss {loss}, other", flush=True)
    print("step 1,000: train loss 2, val loss 3.25;", file=sys.stderr)
    """
    command = script(
        text,
        metrics=[r"iter (?P<step>\d+): loss (?P<loss>\S+)"],
        evaluations=r"step (?P<step>[\d,]+): train loss (?P<train>\S+), val loss (?P<val>\S+)(?P<never> x)?",
    )
    context = memory()
    result = trained(command, context, tmp_path)
    assert repr([context.logged[step]["loss"] for step in range(4)]) == "[1.5, nan, inf, -inf]"
    assert context.evaluations == {(1000, "train"): (2.0, 1, None), (1000, "val"): (3.25, 1, None)}
    assert (result.step, result.stopped) == (1000, False)


def test_lines_of_json_hold_everything_that_a_run_records(script: Script, memory: Any, tmp_path: Path) -> None:
    lines = [
        {"step": 3, "loss": 0.5, "val/loss": float("nan")},
        {"evaluate": "accuracy", "value": 0.5, "point": {"length": 8}, "items": 4, "se_items": 0.1},
        {"step": 4, "evaluate": "mean", "items": {"a": 1, "b": 3}},
        {"probe": "gate", "value": 1, "layer": 2, "head": 0},
        {"cost": {"gpu_s": 3, "parameters": 5}},
        {"log": {"evaluate": 1.0}},
    ]
    text = f"""
    import os
    file = open(os.environ["ABLATE_METRICS"], "w")
    file.write({chr(10).join(map(json.dumps, lines))!r})  # the last one without a line feed
    """
    context = memory()
    result = trained(script(text), context, tmp_path)
    assert repr(context.logged) == "{3: {'loss': 0.5, 'val/loss': nan}, 4: {'evaluate': 1.0}}"
    assert context.evaluations[3, "accuracy", ("length", 8)] == (0.5, 4, 0.1)
    assert context.evaluations[4, "mean"][:2] == (2.0, 2)
    assert context.probes == {(4, "gate", 2, 0): 1.0}
    assert (result.cost["gpu_s"], result.parameters) == (3, 5)


def test_a_python_program_records_by_the_current_run(script: Script, memory: Any, tmp_path: Path) -> None:
    text = """
    import numpy, os
    from ablate import current_run
    run = current_run()
    run.log(7, loss=0.25)
    run.evaluate("accuracy", 0.5, point={"length": 8}, items={"a": 0, "b": 1})
    run.probe("gate", 1.5, layer=1)
    run.cost(tokens=12, parameters=10)
    run.artefact("map", {"weights": numpy.eye(2)})
    (run.directory / "mine").touch()
    assert run is current_run()
    os.environ["RANK"] = "1"
    current_run().log(8, loss=1)
    """
    context = memory()
    result = trained(script(text), context, tmp_path)
    assert (result.step, context.logged) == (7, {7: {"loss": 0.25}})
    assert context.evaluations[7, "accuracy", ("length", 8)][:2] == (0.5, 2)
    assert context.single[7, "accuracy", ("length", 8)] == {"a": 0, "b": 1}
    assert context.probes == {(7, "gate", 1, None): 1.5}
    assert (result.cost["tokens"], result.parameters) == (12, 10)
    assert [each["weights"].tolist() for each in context.artefacts.values()] == [[[1, 0], [0, 1]]]
    assert (tmp_path / "files" / "mine").exists()


def test_the_current_run_of_a_train_is_its_own_and_elsewhere_there_is_none(memory: Any, tmp_path: Path) -> None:
    context = memory()
    trained(_recording(), context, tmp_path)
    assert context.logged == {1: {"loss": 0.5}}
    with pytest.raises(SpecError):
        current_run()


def _recording() -> Experiment:
    class Recording(Experiment):
        kind: Literal["tests_recording"] = "tests_recording"

        def train(self, run: Any) -> None:
            assert current_run() is run
            current_run().log(1, loss=0.5)

    return Recording()


# Bad reports:


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pass", "reported no value"),
        ("print('iter 1: loss many')", "'many', .*as loss"),
        ("print('iter x: loss 1')", "'x', .*as the step"),
        ("print('iter 2: loss 1'); print('iter 1: loss 1')", "'loss' was logged at step 2 and now at 1"),
        ('write(b\'{"step": 1, "lo\')', "line 1 .* no whole JSON"),
        ('write(b\'{"step": 1, "loss": 1}\\n7\\n\')', "line 2 "),
        ("write(b'\\xff\\n')", "line 1 "),
        ('write(b\'{"step": -1, "loss": 1}\\n\')', "line 1 .*the step"),
        ('write(b\'{"step": 1, "loss": "low"}\\n\')', "line 1 .*loss"),
        ('write(b\'{"evaluate": "a", "valu": 1}\\n\')', "line 1 .*'valu'"),
        ('write(b\'{"evaluate": "a"}\\n\')', "line 1 .*'a' has no value"),
        ("write(b'{\"cost\": 3}\\n')", "line 1 "),
        ('write(b\'{"fail": "too hot", "reason": "diverged"}\\n\')', "^too hot$"),
        ("write(b' ' * 3_000_000)", "longer than 1 MiB"),
    ],
)
def test_an_unfit_report_fails_the_trial_and_says_where(
    text: str, words: str, script: Script, memory: Any, tmp_path: Path
) -> None:
    head = "import os\ndef write(data):\n    with open(os.environ['ABLATE_METRICS'], 'ab') as file: file.write(data)\n"
    command = script(head + text, metrics=r"iter (?P<step>\S+): loss (?P<loss>\S+)")
    with pytest.raises(Failed, match=words):
        trained(command, memory(), tmp_path)


def test_values_under_another_name_than_the_measure_fail_the_trial(script: Script, memory: Any, tmp_path: Path) -> None:
    command = script("print('loss 1')", metrics=r"loss (?P<los>\S+)")
    with pytest.raises(Failed, match="'los'"):
        train_experiment(command, memory(), tmp_path / "files", lambda: "loss")


def test_output_that_is_no_text_is_read_where_it_is(script: Script, memory: Any, tmp_path: Path, capsys: Any) -> None:
    text = r"""
    import os
    os.write(1, b"\xff\xfe caf\xe9\nloss 1\r\nprogress\rloss 2")
    """
    context = memory()
    pattern = r"^loss (?P<loss>\S+)"
    with pytest.raises(Failed, match="'loss' was logged at step 0"):
        trained(script(text, metrics=pattern), context, tmp_path)
    assert context.logged == {0: {"loss": 1.0}}
    assert "\ufffd\ufffd caf\ufffd\nloss 1" in capsys.readouterr().out


def test_a_flood_of_output_is_bounded_and_its_end_is_kept(
    script: Script, memory: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "MOST_OUTPUT", 1000)
    text = """
    import sys
    for at in range(200_000):
        print("x" * 50)
    sys.stdout.write("y" * 3_000_000)
    print()
    print("loss 1")
    """
    context = memory()
    trained(script(text, metrics=r"^loss (?P<loss>\S+)"), context, tmp_path)
    said = capsys.readouterr().out
    assert context.logged == {0: {"loss": 1.0}}
    assert len(said) < 10_000
    assert said.startswith("x" * 50)
    assert said.endswith("loss 1\n")
    assert f"{200_000 * 51 + 3_000_000 + 1 + 7 - 1000:,}" in said
