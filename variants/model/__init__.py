"""The Transformer around an operator."""
