"""The five papers, a plugin of the other rooms: grids, printed tables beside own results, a page and two commands."""

__all__: list[str] = []
