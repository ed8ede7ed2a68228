"""`Promotion`: when a target gets its next share of an alias: no clock, no task."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.models.releases.alias import AliasTarget


@dataclass(frozen=True, slots=True)
class Plan:
    """The shares, in percent, that a target gets one after the other, `every` seconds at least."""

    target: AliasTarget
    steps: tuple[float, ...]
    every: float

    @property
    def text(self) -> str:
        """What is planned, for people."""
        return f"'{self.target.text}' {','.join(f'{one:g}' for one in self.steps)} %"


class Promotion:
    """A plan under way, whose first step was taken at `now`.

    A step lasts `every` seconds, and until the target has answered `needed` requests in it, so that
    what nobody has called is not judged well. The next one is taken when somebody looks; of a clock
    that jumps forwards it skips none, and one that goes back takes none.
    """

    def __init__(self, plan: Plan, now: float, needed: int = 0) -> None:
        self.plan = plan
        self.needed = needed
        self.step = 0
        self._since = now

    @property
    def share(self) -> float:
        """The share of the target in this step."""
        return self.plan.steps[self.step]

    @property
    def done(self) -> bool:
        """Whether this step is the last."""
        return self.step + 1 >= len(self.plan.steps)

    @property
    def text(self) -> str:
        """Which step it is, for people."""
        return (
            f"promotion of '{self.plan.target.text}': step {self.step + 1} of"
            f" {len(self.plan.steps)}, {self.share:g} %"
        )

    def due_in(self, now: float) -> float:
        """Seconds until the next step is due by its time; 0 if it is, or there is none."""
        return 0.0 if self.done else max(0.0, self._since + self.plan.every - now)

    def advance(self, now: float, answered: int, *, serves: bool = True) -> bool:
        """Take the next step if it is due; `answered` are the target's requests in this step."""
        if self.done or not serves or self.due_in(now) > 0 or answered < self.needed:
            return False
        self.step += 1
        self._since = now
        return True
