"""Verdicts, effects, learning curves and Pareto sets of a grid, and its comparison with published results."""
