"""Immutable mappings for specs: `Annotated[dict[str, float], FROZEN]` reads like a dict and cannot change."""

from typing import Any, Never

from pydantic import AfterValidator


class FrozenDict(dict[str, Any]):
    """A dict that cannot change, so that the key of its spec stays valid."""

    def _refuse(self, *entries: object, **named: object) -> Never:
        told = ", ".join(map(repr, (*entries, *named)))
        raise TypeError(f"a mapping inside a spec cannot be changed ({told}); build another with spec.changed(...)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    update = setdefault = pop = popitem = clear = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __reduce__(self) -> tuple[type["FrozenDict"], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


FROZEN = AfterValidator(FrozenDict)
"""Marks a mapping field of a spec: the validated value is a `FrozenDict`."""
