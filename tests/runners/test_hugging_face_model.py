"""Teachers from local directories: the logits are those of the package, and what is no such model is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers
from hugging_face import SIZES, gpt2_config, llama_config, save_model
from safetensors.torch import load_file, save_file
from teachers import learning_trial, prose

from ablate.grid.errors import SpecError
from ablate.training.loop.train import train
from ablate.training.tasks import BytePairs, Distillation, HuggingFaceModel, Text


@pytest.fixture(autouse=True)
def _silent() -> None:
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def teacher_in(folder: Path) -> HuggingFaceModel:
    return HuggingFaceModel(directory=str(folder))


@pytest.fixture
def task(tmp_path: Path) -> Text:
    return prose(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", gpt2_config())
    return tmp_path / "model"


@pytest.mark.parametrize("config", [gpt2_config, llama_config], ids=["gpt2", "llama"])
def test_targets_are_what_transformers_predicts(tmp_path: Path, task: Text, config: Callable, memory: Callable) -> None:
    model, world = save_model(tmp_path / "model", config()), memory()
    distillation = Distillation(task=task, teacher=teacher_in(tmp_path / "model"))
    data = distillation.open()
    batch = data.batch(1, 1)
    with torch.no_grad():
        assert torch.equal(data.complete_batch(batch).targets[..., :-1], model(input_ids=batch.inputs).logits)
    train(learning_trial(distillation), world)
    assert world.logged[6]["kl"] < world.logged[1]["kl"]
    assert world.began[2]["teacher"]["architecture"] == type(model).__name__
    whole = distillation.teacher
    one, two = (each.open(task).logits(batch.inputs) for each in (whole, whole.changed(precision="bfloat16")))
    assert one.dtype == two.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(two, model.bfloat16()(input_ids=batch.inputs).logits.float())


def test_hidden_documents_are_as_if_they_were_not_there(tmp_path: Path, task: Text) -> None:
    """Llama knows distances alone: each half of a window by itself gives what a hidden other half leaves."""
    model = save_model(tmp_path / "model", llama_config())
    teaching = teacher_in(tmp_path / "model").open(task)
    inputs = task.open().batch(1, 1).inputs
    side = torch.arange(8) >= 4
    found = teaching.logits(inputs, (side[:, None] == side[None, :]).expand(6, 8, 8))
    with torch.no_grad():
        halves = torch.cat([model(input_ids=half).logits for half in inputs.split(4, 1)], 1)
        whole = model(input_ids=inputs).logits
    torch.testing.assert_close(found, halves, rtol=0, atol=1e-5)
    assert (found - whole).abs().max() > 0.1
    causal = torch.ones(6, 8, 8, dtype=torch.bool)
    torch.testing.assert_close(teaching.logits(inputs, causal), whole, rtol=0, atol=1e-5)


def test_the_key_knows_the_files_and_not_where_they_lie(tmp_path: Path, folder: Path, task: Text) -> None:
    planned = teacher_in(folder)
    moved = shutil.copytree(folder, tmp_path / "moved")
    (moved / "README.md").write_text("says nothing")
    assert teacher_in(moved).key == planned.key
    state = load_file(moved / "model.safetensors")
    state["transformer.ln_f.bias"][0] += 1
    save_file(state, moved / "model.safetensors", {"format": "pt"})
    assert teacher_in(moved).key != planned.key
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "layer_norm_epsilon": 0.5}))
    with pytest.raises(SpecError, match="leave content_hash out"):
        planned.open(task)
    shutil.rmtree(folder)
    with pytest.raises(SpecError, match=r"there is no directory .*model; give that of a model.* has \['moved'\]"):
        planned.open(task)
    assert HuggingFaceModel.model_validate(planned.data()).key == planned.key
    other = {**planned.data(), "directory": str(moved)}
    with pytest.raises(ValueError, match=r"content_hash is .* and .* has"):
        HuggingFaceModel.model_validate(other)


def test_a_directory_that_is_no_model_is_refused_when_the_spec_is_built(folder: Path) -> None:
    config, weights = folder / "config.json", folder / "model.safetensors"
    plain = json.loads(config.read_text())
    own_code = {"auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "own.py").write_text("raise SystemExit('the code of the directory was run')")
    for text, said in (
        ("{", "is no causal language model .*: OSError"),
        (json.dumps({**plain, "model_type": "abacus"}), "is no causal language model .*: ValueError: .*abacus"),
        (json.dumps({**plain, "model_type": "abacus", **own_code}), "is no causal language model .*: ValueError"),
    ):
        config.write_text(text)
        with pytest.raises(ValueError, match=said):
            teacher_in(folder)
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match=r"lacks config.json or .safetensors files"):
        teacher_in(folder)
    shutil.rmtree(folder)
    with pytest.raises(ValueError, match=r"there is no directory .* with config.json and .safetensors \["):  # no tail
        teacher_in(folder)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("transformer.ln_f.bias", torch.full((8,), torch.nan), "transformer.ln_f.bias of .* not finite"),
        ("transformer.h.1.mlp.c_fc.bias", None, "model lacks 1 weights, such as"),
        ("transformer.ln_f.bias", torch.zeros(5), "model is no causal language model"),
        (None, None, "model is no causal .*: SafetensorError"),
    ],
    ids=["NaN", "missing", "another shape", "torn"],
)
def test_weights_that_cannot_teach_fail(folder: Path, task: Text, name: str | None, value: Any, said: str) -> None:
    path = folder / "model.safetensors"
    state = load_file(path)
    if name is None:
        path.write_bytes(path.read_bytes()[:-50])
    else:
        del state[name]
        save_file(state if value is None else {**state, name: value}, path, {"format": "pt"})
    with pytest.raises(SpecError, match=said):
        Distillation(task=task, teacher=teacher_in(folder)).open()


def test_a_model_needs_the_tokens_and_positions_of_the_task(folder: Path, task: Text) -> None:
    save_model(folder, gpt2_config(vocab_size=257))
    with pytest.raises(ValueError, match="has 257 tokens and the task 'text' has 256"):
        Distillation(task=task, teacher=teacher_in(folder))
    save_model(folder, llama_config(max_position_embeddings=7))
    with pytest.raises(ValueError, match=r"the teacher .* has 7 positions, .* up to 8 tokens"):
        Distillation(task=task, teacher=teacher_in(folder))


def test_a_model_that_reads_ahead_is_no_teacher(tmp_path: Path, task: Text) -> None:
    """BERT's language modelling head is loaded as well as any, over layers that see everything."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    save_model(tmp_path / "model", transformers.BertConfig(**SIZES, **sizes, max_position_embeddings=16))
    given = task.changed(context=16, prefix=8)
    with pytest.raises(
        SpecError, match=r"the teacher .* reads ahead, .* predicts what comes next without having seen it"
    ):
        Distillation(task=given, teacher=teacher_in(tmp_path / "model")).open()


def test_its_tokenizer_is_that_of_the_task(folder: Path, task: Text) -> None:
    """The same byte pairs pass; those of another text and bytes do not."""
    pairs = task.changed(tokenizer=BytePairs(vocabulary=280))
    shutil.rmtree(folder)
    save_model(folder, gpt2_config(vocab_size=280))
    own = tokenizers.Tokenizer.from_str(pairs.encoder()._tokenizer.to_str())
    own.save(str(folder / "tokenizer.json"))
    teacher = teacher_in(folder)
    assert Distillation(task=pairs, teacher=teacher).open() is not None
    other = tokenizers.Tokenizer(tokenizers.models.BPE())
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    other.train_from_iterator(["the quick brown fox jumps over lazy dogs " * 9], trainer)
    other.save(str(folder / "tokenizer.json"))
    with pytest.raises(SpecError, match=r"the teacher .* has token 0 as .* one tokenizer"):
        Distillation(task=pairs, teacher=teacher_in(folder)).open()
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(SpecError, match=r"is no tokenizer.json of the package tokenizers"):
        Distillation(task=pairs, teacher=teacher_in(folder)).open()
