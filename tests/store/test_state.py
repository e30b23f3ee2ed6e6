"""The state of a trial: one rule, which files and the database follow alike."""

import ast
from itertools import product
from pathlib import Path

from synthetic import plan_header, plan_lines, publish_grid, write_end, write_start

from ablate.store.files.layout import Layout
from ablate.store.files.trial_state import trial_state
from ablate.store.ingest.ingest import ingest
from ablate.store.state import COUNTED, OF_FILES, State
from ablate.store.store import Store

LIVE, DEAD = {}, {"pid": 2**22 + 1, "pid_started": 1.0}
ATTEMPTS = ("ok", "failed", "stopped", "live", "dead")


def expect(history: tuple[str, ...]) -> State:
    """State the meaning of a history in words of its own."""
    if "ok" in history:
        return State.DONE
    ended = [each for each in history if each in ("failed", "stopped")]
    after = history[max((at for at, each in enumerate(history) if each in ended), default=-1) + 1 :]
    if ended[-1:] == ["failed"] and "live" not in after:
        return State.FAILED
    if "live" in history:
        return State.RUNNING
    return State.PENDING if not history else State.STOPPED if history[-1] == "stopped" else State.LOST


def test_files_and_the_database_tell_the_same_state_of_every_history(tmp_path: Path) -> None:
    histories = [each for length in range(4) for each in product(ATTEMPTS, repeat=length)]
    lines = plan_lines(("softmax",), range(len(histories)), "g", {})
    layout = Layout(tmp_path)
    publish_grid(layout, plan_header(lines, "g", {}, ("softmax",)), lines)
    for line, history in zip(lines, histories, strict=True):
        for number, each in enumerate(history, start=1):
            write_start(layout, line["trial"], number, **(LIVE if each == "live" else DEAD))
            if each not in ("live", "dead"):
                write_end(layout, line["trial"], number, status=each)
    ingest(tmp_path)
    with Store.open(tmp_path, refresh=False) as store:
        stored = dict(store.sql("SELECT trial, state FROM trial").rows())
        (counted,) = store.progress("g").rows(named=True)
    expected = {line["trial"]: expect(history) for line, history in zip(lines, histories, strict=True)}
    assert {key: trial_state(layout, key).state for key in expected} == stored == expected
    assert {state: counted[state] for state in OF_FILES} == {
        state: list(expected.values()).count(state) for state in OF_FILES
    }
    assert set(expected.values()) == set(OF_FILES) < set(COUNTED) < set(State)


PACKAGES = ("grid", "variants", "runners", "training", "store", "dashboards")
OLD = {"ok", "was_ok", "was_failed", "gone", "unread", "unfinished"}

ELSEWHERE = {
    "training/posthoc/evaluate.py": {"failed"},  # an evaluation
    "runners/backends/slurm/scheduler.py": {"queued", "running"},  # a task of a job array
    "runners/backends/backend.py": {"queued", "running", "lost", "unknown"},  # a worker
    "runners/attempts/worker_records.py": {"done"},  # why a worker left: all rows are done
    "runners/processes/failure.py": {"stalled"},  # why a trial failed
    "store/files/records.py": {"ok", "failed", "stopped"},  # an attempt
    "store/analysis/tuned_check.py": {"unknown"},  # the place of a level
    "store/statistics/arms.py": {"failed", "unreadable"},  # the measure of a run
    "store/statistics/check.py": {"unknown"},  # the answer of a check
    "store/statistics/knockout_words.py": {"unknown"},  # a component
}
"""Lists of words that say of something else what a state says of a trial."""


def test_no_other_list_of_words_has_states_or_words_that_were_states() -> None:
    root = Path(__file__).parents[2]
    found: dict[str, set[str]] = {}
    for path in (path for package in PACKAGES for path in (root / package).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", None) == "Literal":
                words = {each.value for each in ast.walk(node.slice) if isinstance(each, ast.Constant)}
                if shared := words & (set(State) | OLD):
                    found.setdefault(path.relative_to(root).as_posix(), set()).update(shared)
    assert found == ELSEWHERE
