"""Results of earlier code keep their verdicts until a version says that their numbers changed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from golden_trials import is_ours

from ablate import Trial
from ablate.grid.spec import Spec
from ablate.runners.cli.app import execute
from ablate.runners.provenance.code import Codes, specs
from ablate.store.files.code_versions import current_sources, differing, of_paths, versions_used
from ablate.variants.links import LINKS
from ablate.variants.paths.choose import PATHS

GOLDEN = Path(__file__).parent / "golden"
ROOT = Path(__file__).parent.parent
RECORDED: dict[str, dict[str, Any]] = json.loads((GOLDEN / "sources.json").read_text())
"""Trials and the hashes of files that release 0.1.0 recorded for them."""
COMMITS: list[tuple[str, str, str]] = json.loads((GOLDEN / "commits.json").read_text())
"""Commits whose bits were compared with release 0.1.0, with the hashes that they recorded of the core and the sink."""
RELEASED = GOLDEN / "release_0_1_0"
SINK = "variants.stages.normalisers.sink"


@pytest.mark.parametrize("name", RECORDED)
def test_hashes_of_the_release_are_version_1_of_what_the_trial_uses(name: str) -> None:
    recorded = RECORDED[name]
    present = Codes().sources(Trial.model_validate(recorded["spec"]))
    raised = [each for each in sorted(present) if present[each] != "1"]
    for path in ("cpu", "sdpa+reference", "triton"):
        unused = {name for name in raised if name.startswith("Path") and name != f"Path {path}"}
        assert list(differing(recorded["sources"], present, path)) == [each for each in raised if each not in unused]
        assert all(len(version) < 3 for version in (current_sources(recorded["sources"], path) or {}).values())


@pytest.mark.parametrize(("commit", "core", "sink"), COMMITS)
def test_hashes_of_compared_commits_are_version_1_and_those_of_new_sinks_2(commit: str, core: str, sink: str) -> None:
    before = [each for each, _, _ in COMMITS].index(commit) < [each for each, _, _ in COMMITS].index("4e2f15a8")
    versions = current_sources({"core": core, SINK: sink}, "cpu") or {}
    assert versions.pop("Normaliser sink") == ("1" if before else "2")
    assert set(versions.values()) == {"1"}
    assert {"Training", "Operator", "Backbone", "Path cpu", "Link unit"} <= versions.keys()


def test_an_unknown_hash_is_other_code() -> None:
    recorded = next(iter(RECORDED.values()))
    present = Codes().sources(Trial.model_validate(recorded["spec"]))
    assert list(differing({**recorded["sources"], "core": "0" * 32}, present, "cpu")) == ["core"]
    assert versions_used(None, None, None) != versions_used(None, "a commit", None)
    assert current_sources(None, None) is None


LEFT = {"Evaluation multiple_choice", "Evaluation long_context", "HashedFiles", "FromFiles"}
"""Names of results of classes that are no longer there."""


def test_the_names_are_those_that_a_result_can_have() -> None:
    named = {
        name for _, names, _ in json.loads((ROOT / "store/files/code_versions.json").read_text()) for name in names
    }
    held = _held_by(Trial)
    rest = {*(f"Link {link}" for link in LINKS), *(f"Path {path.name}" for path in PATHS)}
    # an abstract class, too: the result of a user's class has the version of the class that it derives from
    assert named <= {each.code_name() for each in held} | rest | LEFT
    for recorded in RECORDED.values():
        used = {type(each) for each in specs(Trial.model_validate(recorded["spec"]))}
        parents = {parent for each in used for parent in each.__mro__} & held
        assert named >= {each.code_name() for each in parents} | rest


def _held_by(cls: type[Spec]) -> set[type[Spec]]:
    """Return the package's classes that may be `cls` or inside it; a user's class may derive from each of them."""
    found, waiting = set[type[Spec]](), [cls]
    while waiting:
        each = waiting.pop()
        if each not in found and is_ours(each):
            found.add(each)
            waiting += [*each.__subclasses__(), *_specs_in([field.annotation for field in each.model_fields.values()])]
    return found


def _specs_in(annotations: Iterable[Any]) -> Iterator[type[Spec]]:
    for each in annotations:
        if isinstance(each, type) and issubclass(each, Spec):
            yield each
        yield from _specs_in(get_args(each))


def test_a_raised_version_is_other_code_where_it_is_used() -> None:
    recorded = {"Score ssa": "1", "Path cpu": "1", "class Mine": "a"}
    assert not [*differing(recorded, {**recorded, "Path sdpa": "2", "Score relu": "1"}, "cpu")]
    assert [*differing(recorded, {**recorded, "Score ssa": "2"}, "cpu")] == ["Score ssa"]
    assert [*differing(recorded, {**recorded, "Path cpu": "2"}, "cpu")] == ["Path cpu"]
    assert [*differing(recorded, {**recorded, "class Mine": "b"}, "cpu")] == ["class Mine"]
    assert [*differing(recorded, {**recorded, "spec": "b"}, "cpu")] == ["spec"]
    assert of_paths({"Path cpu": "1", "Path sdpa": "2", "Training": "1"}, ["cpu"]) == {"Path cpu": "1", "Training": "1"}


def test_a_campaign_of_the_release_needs_no_training_and_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(RELEASED / "campaign", tmp_path / "campaign")
    campaign = ["--campaign", str(tmp_path / "campaign")]
    for seeds, pairs in (([], 2), (["seeds=0..3"], 4)):
        assert execute(["run", str(RELEASED / "spec.py"), *seeds, *campaign, "--on", "inline"]) == 0
        assert "4 were done before" in (words := "".join(capsys.readouterr())), words
        assert "other code" not in words
        assert execute(["table", *campaign, "--json"]) == 0
        table = json.loads(capsys.readouterr().out)
        (row,) = table["data"]
        assert (row["pairs"], [each for each in table["warnings"] if "code" in each]) == (pairs, [])
    assert row["p"] is not None, row["reason"]  # runs of several versions are not tested


def test_an_edit_without_a_version_leaves_verdicts_as_they_are(tmp_path: Path) -> None:
    tree, campaign = tmp_path / "tree", tmp_path / "campaign"
    shutil.copytree(ROOT / "src" / "ablate", tree / "ablate", ignore=shutil.ignore_patterns("__pycache__"))

    def ablate(*command: str) -> str:
        whole = [sys.executable, "-P", "-m", "ablate", *command, "--campaign", str(campaign)]
        done = subprocess.run(whole, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout if command[0] == "table" else done.stderr

    spec = str(RELEASED / "spec.py")
    ablate("run", spec, "--on", "inline")
    before = ablate("table", "--json")
    for file, edit in (
        ("variants/attend.py", "raise SpecError("),
        ("training/loop/batch_parts.py", "raise SpecError("),
    ):
        text = (tree / "ablate" / file).read_text()
        assert edit in text
        (tree / "ablate" / file).write_text(text.replace(edit, f'{edit}"edited: " + ', 1) + "\nEDITED: int | str = 1\n")
    said = ablate("run", spec, "--on", "inline")
    assert "4 were done before" in said
    assert "other code" not in said
    assert ablate("table", "--json") == before
