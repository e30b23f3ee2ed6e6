"""Saves of a trial that several processes train: at the same step, with the random states and batches of each."""

from typing import TYPE_CHECKING, Any, final

from ablate.runners.attempts.step_loops import StepLoop
from ablate.runners.processes.training_context import Failed, TrainingContext

if TYPE_CHECKING:
    from ablate.runners.processes.process_group import RankAgreement, World


@final
class SharedSaves:
    """Decides when the processes of a trial save, and collects their parts; `world` is None for one process."""

    def __init__(self, context: TrainingContext, world: "World | None") -> None:
        self._context, self._world = context, world
        self._agreement: RankAgreement | None = None

    def find_due(self, step: int) -> str | None:
        """Return "stop" or "save" if the state is to be saved after this step; all processes do at the same step."""
        due = "save" if self._context.checkpoint_due() else None
        if self._context.stop_requested():
            due = "stop"
        if self._world is None:
            return due
        if self._agreement is None:
            from ablate.runners.processes.process_group import RankAgreement

            self._agreement = RankAgreement(self._world.place.rank)
        if due is not None:
            self._agreement.propose(step, due)
        return self._agreement.due(step)

    def end_loop(self) -> bool:
        """Return True if the processes, which have all left a loop, are to stop."""
        if self._world is None:
            return False
        stops = self._world.any(self._context.stop_requested())
        if self._agreement is not None:
            self._agreement.discard()
        return stops

    def contents(self, loop: StepLoop[Any]) -> dict[str, Any]:
        """Return the part of a checkpoint of `loop`, with those of all processes."""
        contents = loop.contents()
        return {**contents, "ranks": self.gather(contents["ranks"])}

    def gather(self, ranks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the parts of all processes. Raises Failed if they have made other steps."""
        every = ranks if self._world is None else [each for part in self._world.gather(ranks) for each in part]
        steps = [each["step"] for each in every]
        if len(set(steps)) > 1:
            raise Failed(
                f"the ranks were at the steps {steps} when the state was saved; give them equally many, since they "
                "share a sum of gradients in every step"
            )
        return every
