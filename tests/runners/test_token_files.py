"""Token files: the same tokens by file and by text are the same task, and a large file stays on disk."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from ablate import (
    BytePairs,
    Bytes,
    Distillation,
    FixedToken,
    HuggingFaceModel,
    LengthExtrapolation,
    LmEval,
    MaskedText,
    MinimalPairs,
    Probing,
    RandomTokens,
    Text,
    TokenClasses,
    TokenIds,
    Trial,
)
from ablate.grid.errors import SpecError
from ablate.training.loop.train import train
from ablate.training.tasks.text import token_files
from ablate.variants import gpt2

PROSE = "\n".join(f"The {number}th line says: don't add {number * number} words." for number in range(300))
SMALL: dict[str, Any] = {"context": 16, "batch": 4, "validation_windows": 9}
IDS = TokenIds(vocabulary=300, end=0)


def write(path: Path, ids: Any, dtype: str = "uint16") -> Path:
    array = np.asarray(ids).astype(dtype)
    if path.suffix == ".npy":
        np.save(path, array)
    else:
        array.tofile(path)
    return path


def spec(train: Path, validation: Path | None = None, **fields: Any) -> Text:
    held = {} if validation is None else {"validation": str(validation)}
    return Text.model_validate({"source": str(train), **held, "tokenizer": IDS, **SMALL, **fields})


@pytest.fixture
def text(tmp_path: Path) -> Text:
    (tmp_path / "text.jsonl").write_text("\n".join(f'{{"text": "{line}"}}' for line in PROSE.split("\n")))
    return Text(source=str(tmp_path / "text.jsonl"), tokenizer=BytePairs(vocabulary=300), **SMALL)


@pytest.fixture
def files(text: Text, tmp_path: Path) -> tuple[Path, Path]:
    """The tokens of `text` as nanoGPT writes them."""
    return tuple(  # type: ignore[return-value]
        write(tmp_path / name, part.ids) for name, part in zip(("train.bin", "val.bin"), text.streams(), strict=True)
    )


def predict(inputs: Tensor, visible: Tensor | None = None) -> Tensor:
    table = torch.randn(300, 300, generator=torch.Generator().manual_seed(0))
    return table[inputs]


@pytest.mark.parametrize(
    ("names", "dtype"),
    [
        (("a.bin", "b.bin"), "uint16"),
        (("a.bin", "b.bin"), "uint32"),
        (("A.BIN", "b.npy"), "uint32"),
        (("a.npy", "b.npy"), "uint16"),
        (("a.npy", "b.npy"), "int64"),
    ],
)
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"packing": "documents"},
        {"prefix": 5, "training_tokens": 500},
        {"intervention": RandomTokens(positions=(1, 4))},
        {"intervention": FixedToken(position=3, token=7)},
    ],
    ids=str,
)
def test_tokens_of_files_and_of_text_give_the_same_task(
    text: Text, tmp_path: Path, names: tuple[str, str], dtype: str, fields: dict[str, Any]
) -> None:
    paths = [write(tmp_path / name, part.ids, dtype) for name, part in zip(names, text.streams(), strict=True)]
    stated = {"dtype": dtype} if dtype == "uint32" else {}
    by_file, by_text = spec(*paths, **stated, **fields), text.changed(**fields)
    mapped, read = by_file.open(), by_text.open()
    for one, other in [
        *((mapped.batch(seed, step), read.batch(seed, step)) for seed in range(3) for step in range(3)),
        (mapped.examples(5), read.examples(5)),
        (by_file.windows(30, 4), by_text.windows(30, 4)),
    ]:
        assert one.inputs.dtype == other.inputs.dtype
        assert all(a is b if a is None else torch.equal(a, b) for a, b in zip(one, other, strict=True))
    found, expected = (list(data.evaluate(predict)) for data in (mapped, read))
    assert found == expected[:2]
    assert [each.name for each in found] == list(by_file.measures())
    assert mapped.record["trained_on_tokens"] == read.record["trained_on_tokens"]
    assert mapped.constant_loss == read.constant_loss


def test_without_a_validation_file_the_last_tokens_are_not_trained_on(tmp_path: Path) -> None:
    path = write(tmp_path / "a.npy", np.arange(3000), "int32")
    task = spec(path, tokenizer=TokenIds(vocabulary=3000), validation_share=0.25, batch=64, validation_windows=10**6)
    data = task.open()
    trained = torch.cat([data.batch(0, step).targets for step in range(600)])
    assert (int(trained.min()), int(trained.max())) == (1, 2249)
    shown = data.examples(10**6)
    assert int(shown.inputs.min()) == 2250
    assert int(shown.targets.max()) == 2999


def test_a_batch_for_another_device_leaves_the_file_where_it_is(files: tuple[Path, Path]) -> None:
    data = spec(*files).open()
    here = data.batch(1, 2)
    assert data.batch(1, 2, torch.device("meta")).inputs.is_meta
    assert torch.equal(data.batch(1, 2).inputs, here.inputs)


def test_both_files_are_in_the_key_and_their_places_are_not(files: tuple[Path, Path], tmp_path: Path) -> None:
    task, moved = spec(*files), tmp_path / "elsewhere"
    moved.mkdir()
    copies = [Path(shutil.copy(path, moved / f"x{path.name}")) for path in files]
    assert spec(*copies).key == task.key != spec(files[0]).key
    assert spec(files[1], files[0]).key != task.key
    for place in range(2):
        ids = np.fromfile(copies[place], np.uint16)
        write(copies[place], np.where(np.arange(len(ids)) == 5, 1, ids))
        assert spec(*copies).key != task.key
        with pytest.raises(SpecError, match="content_hash is"):
            spec(*files).changed(content_hash=task.content_hash, source=str(copies[0]), validation=str(copies[1]))
        shutil.copy(files[place], copies[place])
    copies[1].unlink()
    absent = task.data() | {"source": str(copies[0]), "validation": str(copies[1])}
    assert Text.model_validate(absent).key == task.key
    with pytest.raises(SpecError, match="there is no token file"):
        Text.model_validate(absent).open()


def test_a_file_that_changes_in_training_ends_it(files: tuple[Path, Path]) -> None:
    data = spec(*files).open()
    data.batch(0, 1)
    write(files[0], np.fromfile(files[0], np.uint16)[::-1][1:])
    with pytest.raises(SpecError, match="content_hash is"):
        data.batch(0, 2)


def test_a_trial_that_is_stopped_goes_on_as_if_it_were_not(
    files: tuple[Path, Path], tiny: Trial, memory: Callable[..., Any]
) -> None:
    trial, whole, parts = tiny.changed(task=spec(*files), model=gpt2(layers=1, heads=2, width=8)), memory(), memory([5])
    train(trial, whole)
    assert train(trial, parts).step == 5
    parts.stop_at.clear()
    train(trial, parts)
    assert parts.logged.keys() == whole.logged.keys()
    assert parts.losses() == whole.losses()
    assert parts.evaluations == whole.evaluations


_CHILD = """
import json, resource, sys
from pathlib import Path
from ablate import Text, TokenIds
from ablate.training.tasks.text import token_files

token_files._SETTLED_NS = 0
def read(): return int(Path("/proc/self/io").read_text().split()[1])
def peak(): return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
small = Text(source=sys.argv[2], tokenizer=TokenIds(vocabulary=50257), context=8).open()
small.batch(0, 1)
before = read(), peak()
task = Text(source=sys.argv[1], tokenizer=TokenIds(vocabulary=50257), context=256)
data = task.open()
for step in range(50):
    data.batch(0, step)
data.examples(64)
print(json.dumps([task.key, read() - before[0], peak() - before[1]]))
"""


def test_a_large_file_is_mapped_and_read_through_once_until_it_changes(tmp_path: Path) -> None:
    """By real processes and a sparse file: what they read and what memory they took."""
    large, small = tmp_path / "large.bin", write(tmp_path / "small.bin", np.arange(2000))
    size = token_files._LARGE
    with large.open("wb") as file:
        file.truncate(size)
        file.seek(size - 4)
        file.write(np.array([7, 9], "<u2").tobytes())
    environ = {**os.environ, "ABLATE_CACHE": str(tmp_path / "cache")}

    def child() -> list[Any]:
        words = [sys.executable, "-c", _CHILD, str(large), str(small)]
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return list(json.loads(done.stdout))

    first, second = child(), child()
    assert first[0] == second[0]
    assert size <= first[1] < 2 * size
    assert second[1] < size / 100
    assert max(first[2], second[2]) < size / 3
    before = large.stat()
    with large.open("r+b") as file:
        file.write(b"\1")
    os.utime(large, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a copy with its times has them
    third = child()
    assert third[0] != first[0]
    assert third[1] >= size
    (tmp_path / "cache").chmod(0o500)
    shutil.rmtree(tmp_path / "cache" / "tokens", ignore_errors=True)
    assert child()[0] == third[0]


def refused(words: str, **fields: Any) -> Any:
    return pytest.param(fields, words, id=words)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        refused("there is no token file .*gone.bin", source="gone.bin"),
        refused("there is no token file .*gone.npy", validation="gone.npy"),
        refused("odd.bin has 4001 bytes, and an id of uint16 has 2", source="odd.bin"),
        refused("even.bin has 4002 bytes, and an id of uint32 has 4", source="even.bin", dtype="uint32"),
        refused("empty.bin has 0 bytes", source="empty.bin"),
        refused("every second id of .*wide.bin is 0 as uint16.*set dtype='uint32'", source="wide.bin"),
        refused("a.bin has the id 19\\d{6}, .* 0 to 299;", source="a.bin", dtype="uint32"),
        refused("a.bin has the id 299, .* 0 to 298; give", source="a.bin", tokenizer=TokenIds(vocabulary=299)),
        refused("negative.npy has the id -1, .* 0 to 299; give", source="negative.npy"),
        refused("a.bin has the id 299, .* 0 to 255; give .*TokenIds", source="a.bin", tokenizer=Bytes()),
        refused("float.npy has <f4 of shape", source="float.npy"),
        refused("square.npy has .* of shape \\(40, 50\\)", source="square.npy"),
        refused("other.npy has >i4 .* whole numbers with one dimension", source="other.npy"),
        refused("torn.npy cannot be read: .*write it with numpy.save", source="torn.npy"),
        refused("text.npy cannot be read: .*write it with numpy.save", source="text.npy"),
        refused("the validation part of .*short.bin has 16 tokens", validation="short.bin"),
        refused("the train part of .*short.bin has 14 tokens", source="short.bin"),
        refused("training_tokens=5000 are more than .*a.bin has, 1800 tokens", training_tokens=5000),
        refused("a.bin is also in .*a.bin, .*; give another", validation="a.bin"),
        refused("a.bin is also in .*copy.bin, .*; give another", source="copy.bin", validation="a.bin"),
        refused("a.txt is no token file, .bin or .npy", validation="a.txt"),
        refused(
            "b.bin holds no text; a text is a .txt, .jsonl or .parquet file",
            source="a.txt",
            tokenizer=Bytes(),
            validation="b.bin",
        ),
        refused("'token_ids' is for token files.*a.txt", source="a.txt"),
        refused("dtype='uint32' is for token files", source="a.txt", tokenizer=Bytes(), dtype="uint32"),
        refused("dtype='uint32' is that of .bin files", source="int.npy", dtype="uint32"),
        refused("'byte_pairs' is learned from a text, .*a.bin has tokens", tokenizer=BytePairs()),
        refused(
            "the tokenizer has 128256 ids, and uint16 holds those to 65535; set", tokenizer=TokenIds(vocabulary=128256)
        ),
        refused("set tokenizer.end", packing="documents", tokenizer=TokenIds(vocabulary=300)),
        refused("tokenizer.end=300 is no id, 0 to 299", tokenizer={"kind": "token_ids", "vocabulary": 300, "end": 300}),
        refused("column names a field of .jsonl and .parquet files; got 'body'", column="body"),
        refused("validation_share=0.2 splits a text", validation="b.bin", validation_share=0.2),
        refused("intervention.token", intervention=FixedToken()),
        refused("are two texts; drop one", hub={"name": "a/b"}),
    ],
)
def test_others_are_refused_in_one_sentence(tmp_path: Path, fields: dict[str, Any], words: str) -> None:
    ids = np.arange(2000) % 300
    for name in ("a.bin", "copy.bin"):
        write(tmp_path / name, ids)
    write(tmp_path / "b.bin", ids[5:])
    write(tmp_path / "wide.bin", ids, "uint32")
    write(tmp_path / "short.bin", ids[:16])
    write(tmp_path / "int.npy", ids)
    write(tmp_path / "float.npy", ids, "float32")
    write(tmp_path / "square.npy", ids.reshape(40, 50))
    write(tmp_path / "other.npy", ids, ">i4")
    write(tmp_path / "negative.npy", ids - 1, "int16")
    (tmp_path / "odd.bin").write_bytes(ids.astype("u2").tobytes() + b"\0")
    (tmp_path / "even.bin").write_bytes(ids.astype("u2").tobytes() + b"\0\0")
    (tmp_path / "torn.npy").write_bytes((tmp_path / "int.npy").read_bytes()[:-9])
    for name in ("text.npy", "a.txt"):
        (tmp_path / name).write_text(PROSE)
    (tmp_path / "empty.bin").touch()
    places = {name: str(tmp_path / fields[name]) for name in ("source", "validation") if name in fields}
    values = {"source": str(tmp_path / "a.bin"), "tokenizer": IDS, **SMALL, **fields, **places}
    with pytest.raises(ValidationError, match=words) as caught:
        Text.model_validate(values)
    assert len(caught.value.errors()) == 1


def test_what_reads_text_needs_the_tokenizer_of_the_tokens(
    files: tuple[Path, Path], tmp_path: Path, tiny: Trial
) -> None:
    """With it, or for what reads no text, a trial takes token files like texts."""
    (tmp_path / "pairs.txt").write_text("the dogs sleeps\nthe dogs sleep\n")
    (tmp_path / "t.yaml").write_text("task: the\n")
    pairs = MinimalPairs(source=str(tmp_path / "pairs.txt"), scoring="causal", longest=32)
    asked = LmEval(tasks=("the",), include=str(tmp_path), context=16)
    classes = Probing(probes=(TokenClasses(by="closed_class"),))
    trial = tiny.changed(task=spec(*files), model=gpt2(layers=1, heads=2, width=8, max_positions=32))
    for fields in ({"evaluations": (pairs,)}, {"evaluations": (asked,)}, {"probing": classes}):
        with pytest.raises(SpecError, match=r"reads text; the tokenizer 'token_ids' has ids and no text; give the one"):
            trial.changed(**fields)
    teacher = HuggingFaceModel(directory="/nowhere", content_hash="0" * 32, vocabulary=300)
    taught = Distillation(task=spec(*files), teacher=teacher)
    assert not taught.spelled
    for ask in ("encode", "decode", "token_bytes"):
        with pytest.raises(SpecError, match="has ids and no text"):
            getattr(taught.encoder(), ask)("a")
    ids = np.frombuffer(PROSE.encode(), np.uint8)
    paths = write(tmp_path / "a.bin", ids[:9000]), write(tmp_path / "b.bin", ids[9000:])
    known = trial.changed(task=spec(*paths, tokenizer=Bytes()), evaluations=(pairs,), probing=classes)
    assert known.evaluations[0].open(known.task).record["pairs"] == {"pairs": 1}
    longer = LengthExtrapolation(lengths=(16, 24), count=4, last=8, bucket=8)
    assert trial.changed(evaluations=(longer,)).evaluations[0].open(trial.task) is not None
    with pytest.raises(
        ValidationError, match=r"holds no text; a text is a .txt, .jsonl or .parquet file, or a folder of these"
    ):
        MaskedText(source=str(files[0]))
    with pytest.raises(ValidationError, match="no mask token, which masked_text needs"):
        MaskedText(source=text_of(tmp_path), tokenizer=IDS)


def text_of(folder: Path) -> str:
    (folder / "prose.txt").write_text(PROSE)
    return str(folder / "prose.txt")
