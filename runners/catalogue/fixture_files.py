"""Example specs of tasks and evaluations, and the small files that they read."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from runners.evaluations import Evaluation, LmEval, LongContext, MultipleChoice
from runners.evaluations.minimal_pairs import MinimalPairs
from runners.tasks import Task, Text
from runners.tasks.distillation.distillation import Distillation
from runners.tasks.distillation.finished_trial import Architecture, FinishedTrial
from runners.tasks.text.masked_text import MaskedText
from variants import Operator, Placement, gpt2

_LINES: Final = ("Heads look.", "A row sums.", "It is a sink.", "Rows sum to one.", "It looks back.")
_QUESTION: Final = {
    "question": "Rows sum to",
    "choices": ["one", "a lot"],
    "answer": 0,
    "id": "rows",
    "group": "softmax",
}
_LONG_QUESTION: Final = {
    "dataset": "narrativeqa",
    "context": "It looks at the first word. Rows sum to one. A sink takes the rest.",
    "input": "Rows sum to?",
    "answers": ["one"],
    "all_classes": None,
    "_id": "rows",
}
FILES: Final[Mapping[str, str]] = {
    "text.jsonl": "\n".join(json.dumps({"text": line}) for line in _LINES * 120),
    "pairs/agreement.txt": "heads looks\nheads look\na row sum\na row sums\n",
    "choices.jsonl": json.dumps(_QUESTION),
    "harness/rows.yaml": "task: rows\n",
    "questions.jsonl": json.dumps(_LONG_QUESTION),
}


@contextmanager
def make_fixture_files() -> Iterator[Path]:
    """Make a temporary folder with `FILES`."""
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        yield root


def _make_distillation(folder: Path) -> Distillation:
    architecture = Architecture(
        model=gpt2(layers=2, heads=4, width=64), operator=Operator(), placement=Placement(), vocabulary=256
    )
    teacher = FinishedTrial(
        campaign=str(folder / "campaigns/teachers"),
        trial="0123456789abcdef" * 2,
        content_hash="0" * 32,
        architecture=architecture,
    )
    return Distillation(task=Text(source=str(folder / "text.jsonl")), teacher=teacher, temperature=2.0)


EXAMPLES: Final[Mapping[str, Callable[[Path], Task | Evaluation]]] = {
    "distillation": _make_distillation,
    "lm_eval": lambda folder: LmEval(tasks=("rows",), include=str(folder / "harness")),
    "long_context": lambda folder: LongContext(source=str(folder / "questions.jsonl")),
    "masked_text": lambda folder: MaskedText(source=str(folder / "text.jsonl")),
    "minimal_pairs": lambda folder: MinimalPairs(source=str(folder / "pairs")),
    "multiple_choice": lambda folder: MultipleChoice(source=str(folder / "choices.jsonl")),
    "text": lambda folder: Text(source=str(folder / "text.jsonl")),
}
"""Specs of the kinds that need arguments; `folder` holds `FILES`. All other kinds are made without arguments."""
