"""From queries and keys to logits: signals, margin, gate."""
