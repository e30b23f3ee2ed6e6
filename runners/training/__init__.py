"""Training one model: loop, ranks, compilation, cost."""
