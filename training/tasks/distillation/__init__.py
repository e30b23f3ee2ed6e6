"""Learning from a trained model."""
