"""Evaluations of finished trials: kept weights, later evaluations, and their records."""
