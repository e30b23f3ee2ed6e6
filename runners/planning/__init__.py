"""Plans of a run: which trials must run, expected time and statistical power."""
