"""Plans of a run: remaining trials, expected time and statistical power."""
