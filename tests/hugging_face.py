"""Small causal language models of the package transformers."""

from pathlib import Path
from typing import Any

import torch
import transformers

SIZES: dict[str, Any] = {"vocab_size": 256, "bos_token_id": 0, "eos_token_id": 0}


def gpt2_config(**fields: Any) -> Any:
    return transformers.GPT2Config(**{**SIZES, "n_positions": 16, "n_embd": 8, "n_layer": 2, "n_head": 2, **fields})


def llama_config(kind: type = transformers.LlamaConfig, **fields: Any) -> Any:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {"num_key_value_heads": 1, "max_position_embeddings": 16, "pad_token_id": 0}
    return kind(**{**SIZES, **sizes, **more, **fields})


def save_model(folder: Path, config: Any) -> Any:
    """A model with random weights, spread so that its predictions differ; on disk, too."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for weights in model.parameters():
            weights.add_(0.2 * torch.randn_like(weights))
    model.save_pretrained(folder)
    return model
