"""The files that tasks and evaluations of the generated pages read, so that no page depends on a machine's own."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

_LINES = ("Heads look.", "A row sums.", "It is a sink.", "Rows sum to one.", "It looks back.")
_QUESTION = {"question": "Rows sum to", "choices": ["one", "a lot"], "answer": 0, "id": "rows", "group": "softmax"}
_LONG = {
    "dataset": "narrativeqa",
    "context": "It looks at the first word. Rows sum to one. A sink takes the rest.",
    "input": "Rows sum to?",
    "answers": ["one"],
    "all_classes": None,
    "_id": "rows",
}

FILES: Mapping[str, str] = {
    "text.jsonl": "\n".join(json.dumps({"text": line}) for line in _LINES * 120),
    "pairs/agreement.txt": "heads looks\nheads look\na row sum\na row sums\n",
    "choices.jsonl": json.dumps(_QUESTION),
    "harness/rows.yaml": "task: rows\n",
    "questions.jsonl": json.dumps(_LONG),
}
"""By path below the folder."""


@contextmanager
def materials() -> Iterator[Path]:
    """A folder with `FILES`, as long as this is open."""
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        yield root
