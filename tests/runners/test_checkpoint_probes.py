"""Public checkpoints: layers are those that transformers computes, and their probes are logged as a run."""

import gc
import json
import re
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
import torch
import transformers
from hugging_face import gpt2_config, llama_config, save_model
from teachers import prose
from tokenizers import decoders, models, pre_tokenizers

from ablate.grid.errors import SpecError
from ablate.store import Campaign
from ablate.training.posthoc.checkpoint_probes import _Checkpoint, probe_checkpoint
from ablate.training.probes import (
    AttentionMaps,
    FirstKey,
    GradientNorms,
    GroundMass,
    MassiveActivation,
    Probe,
    Probing,
    SinkShare,
)

WIDE = {"vocab_size": 256, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
POSITIONS = {"max_position_embeddings": 16}
CONFIGS = {
    "gpt2": gpt2_config,
    "opt": lambda: transformers.OPTConfig(**WIDE, **POSITIONS, ffn_dim=16, word_embed_proj_dim=8),
    "pythia": lambda: transformers.GPTNeoXConfig(**WIDE, **POSITIONS, intermediate_size=16, rotary_pct=0.5),
    "llama": llama_config,
    "mistral": lambda: llama_config(transformers.MistralConfig),
}
LAYERS = Probing(probes=(SinkShare(eps=(0.2,)), MassiveActivation(), FirstKey()), sequences=5, length=6)


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_layers_are_those_of_transformers(tmp_path: Path, config: Callable) -> None:
    model, tokens = save_model(tmp_path, config()), torch.randint(1, 256, (3, 7))
    model.set_attn_implementation("eager")
    with torch.no_grad():
        wanted = model(input_ids=tokens, output_attentions=True, output_hidden_states=True)
    found = list(_Checkpoint(model, "model").trace_layers(tokens, None))
    assert len(found) == 2
    for layer, trace in enumerate(found):
        torch.testing.assert_close(trace.worked.attended.weights, wanted.attentions[layer], rtol=0, atol=1e-5)
        torch.testing.assert_close(trace.entering, wanted.hidden_states[layer], rtol=0, atol=1e-4)
        torch.testing.assert_close(trace.leaving, wanted.hidden_states[layer + 1], rtol=0, atol=1e-4)


def test_hidden_documents_have_no_weight(tmp_path: Path) -> None:
    model, tokens = save_model(tmp_path, llama_config()), torch.randint(1, 256, (1, 8))
    side = torch.arange(8) >= 4
    alike = (side[:, None] == side[None, :])[None]
    for mask in (alike, torch.ones(1, 1, 8, dtype=torch.bool)):
        seen = (mask & torch.ones(8, 8, dtype=torch.bool).tril())[0]
        for trace in _Checkpoint(model, "model").trace_layers(tokens, mask):
            assert torch.equal(trace.worked.attended.weights[0] > 0, seen.expand(2, 8, 8))


def test_the_sink_share_is_the_paper_s_formula_on_transformers_weights(tmp_path: Path) -> None:
    model, task = save_model(tmp_path / "tiny", gpt2_config()), prose(tmp_path)
    campaign = Campaign(tmp_path / "campaign")
    for _ in range(2):  # the second time there is nothing to do
        probe_checkpoint(tmp_path / "tiny", task, LAYERS, campaign)
    model.set_attn_implementation("eager")
    tokens = task.open().examples(5).inputs[:, :6]
    with torch.no_grad():
        maps = model(input_ids=tokens, output_attentions=True).attentions
    rows = campaign.sql("SELECT layer, head, value FROM probe WHERE name = 'sink_share' ORDER BY ALL").rows()
    assert len(rows) == 4
    for layer, head, value in rows:
        importance = maps[layer][:, head, :, 0].mean(-1)
        assert value == pytest.approx((importance > 0.2).float().mean().item())
    assert campaign.sql("SELECT count(*) FROM attempt").item() == 1
    names = set(campaign.sql("SELECT DISTINCT name FROM probe").to_series())
    assert {"activation_ratio", "first_key_norm", "first_qk_cosine", "importance"} <= names


@pytest.mark.parametrize(
    "probe",
    [AttentionMaps(), GradientNorms(), GroundMass(), SinkShare(positions=(0,)), SinkShare(positions=(50,))],
    ids=["file", "training", "ground", "learned key", "late position"],
)
def test_probes_without_a_value_are_refused(tmp_path: Path, probe: Probe) -> None:
    probing = Probing(probes=(probe,), length=6)
    with pytest.raises(SpecError, match=r"leave it out|drop it|needs sequences of 50 tokens"):
        probe_checkpoint(tmp_path, prose(tmp_path), probing, Campaign(tmp_path / "campaign"))


@pytest.mark.parametrize(
    ("config", "words", "begun"),
    [
        (lambda: gpt2_config(vocab_size=300), "300 tokens", False),
        (lambda: llama_config(transformers.MistralConfig, sliding_window=3), "hides other keys", True),
        (lambda: llama_config(transformers.Gemma2Config, head_dim=4), "has softcap", True),
        (
            lambda: transformers.BloomConfig(vocab_size=256, hidden_size=8, n_layer=2, n_head=2),
            "the attention of 0;",
            True,
        ),
    ],
    ids=["tokens", "window", "softcap", "other attention"],
)
def test_models_that_do_not_fit_are_refused(tmp_path: Path, config: Callable, words: str, begun: bool) -> None:
    save_model(tmp_path / "tiny", config())
    with pytest.raises(SpecError, match=words):
        probe_checkpoint(tmp_path / "tiny", prose(tmp_path), LAYERS, Campaign(tmp_path / "campaign"))
    assert (tmp_path / "campaign").exists() == begun  # as a failed run


def test_one_checkpoint_is_measured_at_several_lengths(tmp_path: Path) -> None:
    save_model(tmp_path / "tiny", gpt2_config())
    campaign = Campaign(tmp_path / "campaign")
    for length in (4, 6):
        probing = LAYERS.changed(length=length)
        probe_checkpoint(tmp_path / "tiny", prose(tmp_path), probing, campaign, label=f"tiny, {length} tokens")
    assert campaign.sql("SELECT count(DISTINCT label) FROM grid_trial").item() == 2
    with pytest.raises(SpecError, match=r"'tiny, 4 tokens' of grid .* has another config"):
        probe_checkpoint(tmp_path / "tiny", prose(tmp_path), LAYERS, campaign, label="tiny, 4 tokens")


def test_the_example_of_the_page_measures_a_local_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "probes.md").read_text()
    (example,) = re.findall(r"^## Public checkpoints.*?```python\n(.*?)```", page, re.MULTILINE | re.DOTALL)
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "models" / "gpt2", gpt2_config(n_positions=64, vocab_size=257))
    letters = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab={each: at for at, each in enumerate(sorted(letters))}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.save("models/gpt2/tokenizer.json")
    lines = [json.dumps({"text": f"This is document {at}. " * 20}) for at in range(400)]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    exec(example, {})
    assert Campaign("campaigns/checkpoints").probes("sink_share")["label"].unique().to_list() == ["gpt2"]


def test_nothing_of_a_model_stays_in_memory(tmp_path: Path) -> None:
    model = save_model(tmp_path, gpt2_config())
    gone = weakref.ref(model)
    list(_Checkpoint(model, "model").trace_layers(torch.ones(1, 4, dtype=torch.long), None))
    del model
    gc.collect()
    assert gone() is None
