"""Printed cells and claims beside the cells of a grid: which are the same, and how they differ."""
