"""Judging models that have been trained: weights that a trial kept, evaluations of later, and their records."""
