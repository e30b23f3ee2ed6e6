"""The pages about clusters and campaigns: what they name is there, and what is there is named."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from cyclopts import App

from runners.attempts.attempt import FLUSH_S, FLUSH_SHARE
from runners.cli.app import app
from runners.provenance.specfile import load_spec_file
from runners.slurm.spec import Needs, Slurm, cluster_of
from runners.slurm.submit.job_arrays import MOST_DEATHS, MOST_REFUSALS

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {
    page.stem: page.read_text() for page in (DOCS / f"{name}.md" for name in ("cluster", "administrators", "tending"))
}
README = (DOCS.parent / "README.md").read_text()
OPTIONS = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
CALL = re.compile(r"(?:`|^ {4}(?:\$ |srun .*)?)ablate ([a-z]+)([^`\n#|]*)", re.MULTILINE)
ELSEWHERE = {
    *(
        "--array",
        "--cpus-per-task",
        "--gres",
        "--hold",
        "--name",
        "--open-mode",
        "--requeue",
        "--signal",
        "--test-only",
    ),
    *("--version", "--group"),
}
"""Of sbatch, srun, scancel and python."""


def options(command: str) -> set[str]:
    """The options of a command, with the short ones."""
    found: App = app[command]
    return {
        name for each in found.assemble_argument_collection() for name in each.parameter.name or () if name[0] == "-"
    }


def calls(text: str) -> list[tuple[str, str]]:
    """Every `ablate COMMAND ...` of a page: the command, and what follows it."""
    return CALL.findall(text)


def spec_of(page: str) -> str:
    """The Python file in a page."""
    return re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]  # type: ignore[index]


@pytest.mark.parametrize("name", [*PAGES, "README"])
def test_every_call_in_a_page_is_one_that_the_command_takes(name: str) -> None:
    found = calls({**PAGES, "README": README}[name])
    assert len(found) >= 5
    for command, rest in found:
        assert not set(OPTIONS.findall(rest)) - options(command), f"ablate {command}{rest}"


def test_every_option_in_a_page_is_one_of_ablate_or_of_a_program_named_here() -> None:
    every = {option for command in ("run", "retry", "logs") for option in options(command)} | ELSEWHERE
    for name, page in PAGES.items():
        assert not {each for each in OPTIONS.findall(page) if each.startswith("--")} - every, name


def test_every_field_of_slurm_and_every_option_of_a_submission_is_explained() -> None:
    table = "\n".join(line for line in PAGES["cluster"].splitlines() if line.startswith("|"))
    assert [field for field in Slurm.model_fields if f"`{field}`" not in table] == []
    general = {"--grid", "--campaign", "--on", "--retry", "--again", "--help", "-h"}
    for option in options("run") - general:
        assert f"`{option}" in PAGES["cluster"], option


def test_the_fields_that_the_page_sets_are_there() -> None:
    for name, kind in {"Slurm": Slurm, "Needs": Needs}.items():
        said = re.findall(rf"{name}\(([^\n]*)\)", PAGES["cluster"])
        named = {field for each in said for field in re.findall(r"(?<!\{)\b(\w+)=", each)}
        assert named, name
        assert named <= set(kind.model_fields), name


def test_the_spec_file_of_the_page_is_a_grid_and_what_is_asked_for_it(tmp_path: Path) -> None:
    path = tmp_path / "noise.py"
    path.write_text(spec_of(PAGES["cluster"]))
    (grid,) = load_spec_file(path).values()
    assert len(list(grid.trials())) == 6
    assert cluster_of(path) == Slurm(partition="debug", time="30m", workers=2)


def test_the_defaults_that_the_pages_say_are_those_of_the_code() -> None:
    slurm = Slurm()
    assert f"default `{slurm.time}`" in PAGES["cluster"]
    assert f"leave; default {slurm.signal_s} " in PAGES["cluster"]
    assert f"of a trial; default {slurm.heartbeat_s:g} " in PAGES["cluster"]
    assert f"USR2@{slurm.signal_s}" in PAGES["administrators"]
    assert f"every `heartbeat_s`, {slurm.heartbeat_s:g} s" in PAGES["administrators"]
    assert f"{1000 / slurm.heartbeat_s:.0f} a second: one per trial" in PAGES["administrators"]
    assert f"until it has died {MOST_DEATHS} times since its last 85" in PAGES["administrators"]
    assert MOST_REFUSALS == 3
    assert "three nodes at most" in PAGES["administrators"]


Pieces = tuple[str, ...]
"""A text of the code, cut at its gaps: what stands between two pieces is only known when it is said."""


@cache
def texts_of_the_code() -> set[Pieces]:
    """Every string in the sources of the runners; of formatted ones and of shell scripts the pieces between gaps."""
    trees = [ast.parse(path.read_text()) for path in (DOCS.parent / "runners").rglob("*.py")]
    script = (DOCS.parent / "runners/slurm/submit/worker.sh").read_text()
    found: set[Pieces] = {tuple(re.split(r"\$\w+|\$\{[^}]*\}", line)) for line in script.splitlines()}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                parts = [each.value if isinstance(each, ast.Constant) else "\0" for each in node.values]
                found.add(tuple("".join(map(str, parts)).split("\0")))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= {tuple(re.split(r"\$\w+|\$\{[^}]*\}", line)) for line in node.value.splitlines()}
    return found


def is_value(text: str) -> bool:
    """Whether it may stand in a gap: a name, a count, a duration, and no half sentence."""
    return len(re.findall(r"(?<![\w'.-])[A-Za-z]+(?![\w'.-])", text)) <= 2


def kept(message: str, pieces: Pieces) -> int:
    """How many characters of `message` stand in the code, where it is a stretch of a text with these pieces; else 0."""

    @cache
    def most(at: int, piece: int, offset: int) -> int:
        """From `at` on, where the text is at `offset` of a piece; below 0: it does not fit."""
        text = pieces[piece][offset:]
        if len(message) - at <= len(text):
            if text.startswith(message[at:]):
                return len(message) - at
            return -1
        if not message.startswith(text, at) or piece + 1 == len(pieces):
            return -1
        after = at + len(text)
        ends = [end for end in range(after + 1, len(message)) if is_value(message[after:end])]
        rests = [rest for end in ends if (rest := most(end, piece + 1, 0)) >= 0]
        if is_value(message[after:]):
            rests.append(0)  # the message may end within the gap
        return len(text) + max(rests) if rests else -1

    starts = [
        (piece, offset)
        for piece, text in enumerate(pieces)
        for offset in range(len(text) + 1)
        if text[offset : offset + 1] in ("", message[0])
    ]
    return max((most(0, *start) for start in starts), default=0)


def is_said(message: str, texts: set[Pieces]) -> bool:
    """Whether the code says it, or, one after another, its parts."""
    enough = 0.4 * len(message)
    if any(kept(message, pieces) >= enough for pieces in texts if sum(map(len, pieces)) >= enough):
        return True
    parts = [part for part in re.split(r"(?<=[:;]) ", message, maxsplit=1) if part]
    return len(parts) == 2 and all(is_said(part, texts) for part in parts)


def quoted() -> list[str]:
    """The messages in the page's table of what is wrong, those of bash left out."""
    table = PAGES["cluster"].partition("## When something is wrong")[2]
    cells = [line.split(" | ")[0] for line in table.splitlines() if line.startswith("| ") and "`" in line]
    found = [message for cell in cells for message in re.findall(r"`([^`]{20,})`", cell)]
    return [message for message in found if not message.startswith("module: ")]


def test_the_messages_that_the_page_explains_are_those_of_the_code() -> None:
    texts = texts_of_the_code()
    messages = quoted()
    assert len(messages) > 15
    for message in messages:
        assert all(is_said(part, texts) for part in message.split(" ... ") if "Unable to contact" not in part), message


@pytest.mark.parametrize(
    "message",
    [
        "scontrol does not answer at all",
        "all 7 trials wait in a submission already",
        "nobody here has a partition of that name for you",
        "partition debug has no GPU of kind 'h100'",
        "torch is 2.12.0 here but 2.13.0 where it was submitted",
    ],
)
def test_a_message_that_the_code_does_not_say_is_found(message: str) -> None:
    assert not is_said(message, texts_of_the_code())


def test_what_looks_like_a_fault_in_a_healthy_log_is_explained() -> None:
    healthy = PAGES["cluster"].partition("stand in healthy logs")[2].partition("## ")[0]
    for words in ("Exited with exit code 85", "`Terminated`", "DUE TO JOB REQUEUE"):
        assert words in healthy


def test_every_page_that_is_linked_exists() -> None:
    for text, place in [(README, DOCS.parent), *((page, DOCS) for page in PAGES.values())]:
        for link in re.findall(r"\]\(([\w./-]+)\)", text):
            assert (place / link).exists(), link


def shards(checkpoint_s: int, hours: int) -> int:
    """Files of a table that has rows at every step, by the rule in `runners.attempts.attempt`, the last at the end."""
    written, count = 0, 1
    for age in range(checkpoint_s, hours * 3600, checkpoint_s):
        if age - written >= max(FLUSH_S, FLUSH_SHARE * age):
            written, count = age, count + 1
    return count


def test_the_files_of_a_long_trial_are_as_many_as_is_said() -> None:
    said = "s, the default, leaves {} files of metrics in an hour and {} in ten; one that saves every 300 s leaves {} "
    page = " ".join(PAGES["administrators"].split())
    expected = (shards(20, 1), shards(20, 10), shards(300, 1), shards(300, 10))
    assert (said + "and {}.").format(*expected) in page
