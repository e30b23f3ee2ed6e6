"""The family of position schemes."""

from abc import abstractmethod

from torch import Tensor

from grid.spec import Choice


class Positions(Choice):
    """A position scheme acts on the embeddings, or on queries and keys, or not at all."""

    @property
    @abstractmethod
    def table(self) -> int:
        """How many learned position vectors are added to the embeddings; 0 for none."""

    @property
    def rotates(self) -> bool:
        """Whether `rotate` changes anything."""
        return False

    def rotate(self, x: Tensor, *, signals: int) -> Tensor:  # noqa: ARG002  (the family's signature)
        """Queries or keys [B, H, T, D] with positions 0..T-1 in them; each of `signals` slices on its own."""
        return x
