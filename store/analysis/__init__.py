"""Verdicts, effects, learning curves and Pareto sets of a grid."""
