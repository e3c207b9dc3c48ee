"""What recording and replay need to know of a kind of core: one value for each kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from connectx.core.rules import BrokenRule
from connectx.recording.codec import Codec, Mask
from connectx.values import Value

SettingsT = TypeVar("SettingsT")
CoreT = TypeVar("CoreT", bound="Core")


class Core(Protocol):
    """A state machine from stimuli to steps, whose state can be checked, written and read back."""

    def handle(self, stimulus: Any, now_ms: int) -> Any:
        """Apply one stimulus; returns a `connectx.core.step.Step`."""

    def state(self) -> Mapping[str, Any]:
        """Return all that changes in the core, by name."""

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over the `state` of another core; KeyError if something is missing."""

    def marks(self) -> Any:
        """Return the values that never go back, for `check` after the next step."""

    def check(self, before: Any = None) -> tuple[BrokenRule, ...]:
        """Return the rules that do not hold between two steps; none is sound."""


@dataclass(slots=True)
class Answers:
    """What a core's functions returned: noted while it is recorded, and returned again in a replay.

    Attributes:
        known: answers that do not change, by question. It is replaced and never changed.
        given: other answers, in the order of the calls in the present step.
    """

    known: Mapping[str, Any] = field(default_factory=dict)
    given: list[Any] = field(default_factory=list)

    def learn(self, question: str, answer: Any) -> None:
        """Note an answer that does not change."""
        if question not in self.known or self.known[question] != answer:
            self.known = {**self.known, question: answer}


class CoreKind(Value, Generic[SettingsT, CoreT]):
    """How cores of one kind are recorded and replayed.

    Attributes:
        name: names the kind in files.
        make: a new core with settings.
        codec: writes and reads its stimuli, effects and state.
        listening: settings whose functions note their answers.
        written: settings as JSON values.
        read: the inverse of `written`; functions return the answers. ValueError if the settings are of another version.
        begins: whether a step is recorded though none was before: given the core before it, and its stimulus.
    """

    name: str
    make: Callable[[SettingsT], CoreT]
    codec: Codec
    listening: Callable[[SettingsT, Answers], SettingsT]
    written: Callable[[SettingsT, Mask | None], Any]
    read: Callable[[Any, Answers], SettingsT]
    begins: Callable[[CoreT, Any], bool] = lambda core, stimulus: True


def kind_of_values(name: str, make: Callable[[SettingsT], CoreT], codec: Codec) -> CoreKind[SettingsT, CoreT]:
    """Return a kind whose settings are values that the codec writes, without functions."""
    return CoreKind(
        name,
        make,
        codec,
        listening=lambda settings, answers: settings,
        written=codec.encode,
        read=lambda written, answers: codec.decode(written),
    )
