"""Checks of trials that plans show: starts of numbers, same functions, tasks, knock-outs."""
