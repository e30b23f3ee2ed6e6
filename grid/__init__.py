"""What to run: specs, keys, axes and grids. Pure data; needs pydantic only."""
