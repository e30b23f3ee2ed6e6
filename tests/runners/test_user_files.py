"""Specs of files that a user gives: their content is part of the key and their place is not."""

from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError
from tokenizers import Tokenizer, models

from ablate import LmEval, MaskedText, MinimalPairs, Text, TokenIds, TokenizerFile
from ablate.grid import SpecError

PROSE = "".join(f"the line {number} is one of many .\n" for number in range(99))
TASK = Text(content_hash="0" * 32, source="/nowhere/text.txt", context=16)
ENCODER = MaskedText(content_hash="0" * 32, source="/nowhere/text.txt", context=600)


class Case(NamedTuple):
    """A kind of spec: its file, how it is built and used, and the words of the error without the file."""

    name: str
    content: str
    make: Callable[[Path], Any]
    use: Callable[[Any], object]
    gone: str


CASES = {
    "text": Case("a.txt", PROSE, lambda path: Text(source=str(path), context=16), Text.open, "there is no text"),
    "column of a text": Case(
        "a.jsonl",
        "\n".join(f'{{"body": "{line}"}}' for line in PROSE.splitlines()),
        lambda path: Text(source=str(path), context=16, column="body"),
        Text.open,
        "there is no text",
    ),
    "text for validation": Case(
        "a.txt",
        PROSE,
        lambda path: Text(validation=str(path), context=16),
        Text.open,
        "there is no text",
    ),
    "token file": Case(
        "a.bin",
        PROSE[: len(PROSE) // 2 * 2],
        lambda path: Text(source=str(path), context=16, tokenizer=TokenIds(vocabulary=1 << 16)),
        Text.open,
        "there is no token file",
    ),
    "tokenizer": Case(
        "a.json",
        Tokenizer(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")).to_str(),
        lambda path: TokenizerFile(path=str(path), end="[UNK]"),
        lambda spec: spec.encoder(list),
        "there is no tokenizer file",
    ),
    "minimal pairs": Case(
        "a.txt",
        "the dogs sleeps\nthe dogs sleep\n",
        lambda path: MinimalPairs(source=str(path)),
        lambda spec: spec.open(ENCODER),
        "there are no minimal pairs",
    ),
    "tasks of lm-eval": Case(
        "mine.yaml",
        "task: the\n",
        lambda path: LmEval(tasks=("the",), include=str(path.parent)),
        lambda spec: spec.open(TASK),
        "there is no folder",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_content_is_in_the_key_and_the_place_is_not(case: Case, tmp_path: Path) -> None:
    """A spec with its hash can be read where the files are missing, and never takes other files for them."""
    one, other = (tmp_path / folder / case.name for folder in ("one", "other"))
    for path in (one, other):
        path.parent.mkdir()
        path.write_text(case.content)
    planned = case.make(one)
    (other.parent / ".cache").write_text("left by an editor")
    assert case.make(other).key == planned.key
    one.write_text(case.content.replace("the", "cat"))
    assert case.make(one).key != planned.key
    with pytest.raises(SpecError, match="content_hash is"):
        case.use(planned)
    with pytest.raises(ValidationError, match=r"content_hash is .*leave .*content_hash out"):
        type(planned).model_validate(planned.data())
    rmtree(one.parent)
    assert type(planned).model_validate(planned.data()).key == planned.key
    with pytest.raises(SpecError, match=case.gone):
        case.use(planned)
