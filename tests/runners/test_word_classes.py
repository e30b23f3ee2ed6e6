"""Classes of words, and the attention that goes to them."""

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pydantic import ValidationError
from tokenizers import Tokenizer as Library, decoders, models, pre_tokenizers

from ablate import BytePairs, Grammar, Induction, Probing, Text, TokenClasses, TokenizerFile, Training, Trial
from ablate.grid.errors import EnvironmentProblem
from ablate.training.probes import token_classes
from ablate.training.probes.probe import ProbeInput, probe_model as probe_batch, run_probes
from ablate.training.probes.token_classes import CLASSES, by_closed_class, by_spacy, classes
from ablate.training.tasks.task import Task
from ablate.training.tasks.text.encoder import Encoder
from ablate.training.trial import build_model
from ablate.variants import gpt2, softmax

SENTENCE = "He didn't see the dog's 3.5 tails, oh — it’s “well” known."
TAGGED = {
    "function": ["He", "did", "n't", "the", "'s", "it", "’s"],
    "content": ["see", "dog", "tails", "well", "known"],
    "special_punctuation": [",", "—", "“", "”", "."],
    "other": ["3.5", "oh"],
}


def trial(task: Task, probe: TokenClasses) -> Trial:
    model = gpt2(layers=1, heads=2, width=16)
    probing = Probing(probes=(probe,), length=24)
    return Trial(task=task, model=model, operator=softmax(), training=Training(steps=1), probing=probing)


def test_a_sentence_tagged_by_hand() -> None:
    found, at = by_closed_class(SENTENCE), 0
    kinds = {word: name for name, words in TAGGED.items() for word in words}
    words = sorted(kinds, key=len, reverse=True)
    while at < len(SENTENCE):
        if SENTENCE[at].isspace():
            assert CLASSES[found[at]] == "other"
            at += 1
            continue
        word = next(word for word in words if SENTENCE.startswith(word, at))
        assert {CLASSES[each] for each in found[at : at + len(word)]} == {kinds[word]}, word
        at += len(word)
    for word in ("theorem", "andes", "offer", "_x", "naïve", "世界"):  # some begin like another
        assert CLASSES[by_closed_class(word)[-1]] == "content"


def saved(library: Library, path: Path, *special: str) -> Encoder:
    library.add_special_tokens(list(special))
    library.save(str(path))
    return TokenizerFile(path=str(path)).encoder(list)


def test_a_token_of_two_classes_has_that_of_its_last_visible_character(tmp_path: Path) -> None:
    library = Library(models.BPE({"d": 0, ",": 1, "Ġ": 2, "d,": 3, "d,Ġ": 4, "</s>": 5}, [("d", ","), ("d,", "Ġ")]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    library.decoder = decoders.ByteLevel()
    encoder = saved(library, tmp_path / "t.json", "</s>")
    ids = list(encoder.encode("d, d").ids)
    assert ids == [4, 0]
    assert [CLASSES[each] for each in classes(encoder, ids, "closed_class")] == ["special_punctuation", "content"]


@pytest.fixture
def spacy(monkeypatch: pytest.MonkeyPatch) -> None:
    tags = {"He": "PRON", "saw": "VERB", "it": "PRON", ",": "PUNCT", "3": "NUM"}

    class Word(str):
        __slots__ = ("idx", "pos_")

    def tag(text: str) -> list[Word]:
        words = []
        for match in re.finditer(r"\S+", text):
            words.append(Word(match[0]))
            words[-1].idx, words[-1].pos_ = match.start(), tags[match[0]]
        return words

    module = ModuleType("spacy")
    module.load = {"en_core_web_sm": tag}.__getitem__
    monkeypatch.setitem(sys.modules, "spacy", module)
    monkeypatch.setattr(token_classes, "find_spec", lambda _: object())
    token_classes._spacy.cache_clear()


def test_spacy_s_tags_fall_into_four_classes(spacy: None) -> None:
    letters = {"function": "f", "content": "c", "special_punctuation": "p", "other": "o"}
    assert "".join(letters[CLASSES[each]] for each in by_spacy("He saw , 3 it")) == "ffocccopoooff"
    kinds = [CLASSES[token_classes._TAGS.get(tag, 3)] for tag in ("PROPN", "AUX", "SYM", "INTJ", "SPACE")]
    assert kinds == ["content", "function", "other", "other", "other"]


@pytest.mark.parametrize(
    ("task", "by"), [(Induction(), "closed_class"), (Grammar(), "spacy"), (Text(context=24), "task")]
)
def test_a_backend_that_knows_nothing_of_the_tokens_is_refused(task: Task, by: str) -> None:
    with pytest.raises(ValidationError, match=r"use by='task'|use by='closed_class' or 'spacy' for text"):
        trial(task, TokenClasses.model_validate({"by": by}))
    with pytest.raises(EnvironmentProblem, match=r"spacy is not installed, which .* needs; pip"):
        trial(Text(context=24), TokenClasses(by="spacy"))


@pytest.mark.parametrize("tokenizer", [None, BytePairs(vocabulary=270)])
def test_shares_of_uniform_attention_are_counts_of_tokens(tmp_path: Path, tokenizer: BytePairs | None) -> None:
    (tmp_path / "a.txt").write_text("".join(f"{SENTENCE} The {number} ones, and more!\n" for number in range(200)))
    task = Text(source=str(tmp_path / "a.txt"), context=24, batch=2, **({"tokenizer": tokenizer} if tokenizer else {}))
    built = trial(task, TokenClasses(by="closed_class"))
    model = build_model(built)
    for name, parameter in model.named_parameters():
        if "qkv" in name:
            parameter.data.zero_()
    batch = probe_batch(task.open(), built.probing)
    weights = torch.stack([(torch.arange(24) <= at).double() / (at + 1) for at in range(24)]).mean(0)
    kinds = torch.tensor([classes(task.encoder(), ids, "closed_class") for ids in batch.inputs.tolist()])
    expected = torch.stack([((kinds == number) * weights).sum(1).mean() for number in range(4)])
    expected /= expected.sum()
    with torch.inference_mode():
        found = list(run_probes(built.probing, ProbeInput(model, task, batch, 0, [])))
    for name, share in zip(CLASSES, expected.tolist(), strict=True):
        values = [each.value for each in found if each.name == f"token_class.closed_class.{name}"]
        assert values == [pytest.approx(share, abs=1e-4)] * 2
    assert len(found) == 8
