"""Training one model: steps, compilation, cost, knock-outs."""
