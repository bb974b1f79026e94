"""The common part of every kind of search: stages of trials, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, cast

from oracle.run.waves import at_once
from oracle.spec.document import Node, suggest
from oracle.spec.schema import Between, Clash, Reader, fields_of

LARGEST = 2**20  # number of trials
Trials = Annotated[int, Between(1, LARGEST)]


@dataclass(frozen=True, slots=True)
class Stage:
    """Independent trials that need all of the stage before."""

    name: str
    trials: int
    share: float = 1.0  # of a whole training, for each trial
    times: int = 1  # number of such stages, one after the other


@dataclass(frozen=True)
class Search:
    """A way to find or to make models with many trainings; its fields are its settings."""

    source: ClassVar[str] = ""
    noun: ClassVar[str] = "trials"  # name of what `trials` counts
    free: ClassVar[bool] = False  # whether the number of trials may be left out
    resizes: ClassVar[bool] = False  # whether trials of each stage may have other sizes

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        """Return the stages, with at most `at_once` trials at a time."""
        raise NotImplementedError

    def widths(self, trials: int | None, largest: int) -> set[int]:
        """Return the numbers of trials at once to try: the fewest for each number of waves."""
        numbers: set[int] = set()
        for stage in self.stages(trials, largest):
            numbers |= {min(width, largest) for width in steps(stage.trials)}
        return numbers

    def wrong(self, trials: int | None) -> Iterator[Clash]:
        """Yield settings that contradict each other, or the number of trials."""
        if trials is None and not self.free:
            complaint = f"nobody says how many {self.noun}"
            yield Clash("trials", complaint, "--trials, or `trials:`")

    @property
    def resized(self) -> bool:
        """Whether each stage has the size of trial that suits it."""
        return type(self).resizes

    @classmethod
    def kind(cls) -> str:
        """Return the word for it in a spec and on the command line."""
        return cls.__name__.lower()

    def settings(self) -> dict[str, Any]:
        """Return the fields as data."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def steps(trials: int) -> set[int]:
    """Return ⌈R/w⌉ for every number w of waves."""
    widths, waves = set(), 1
    while waves <= trials:
        width = at_once(trials, waves)
        widths.add(width)
        # the fewest waves of the next narrower width
        waves = trials + 1 if width == 1 else -(-trials // (width - 1))
    return widths


def searches() -> dict[str, type[Search]]:
    """Return every kind of search by name, also those that are defined elsewhere."""
    return {
        cls.kind(): cls for cls in sorted(Search.__subclasses__(), key=lambda search: search.kind())
    }


@dataclass(frozen=True)
class Sought:
    """The search of a spec: a kind, or `{kind: …, setting: …}`."""

    search: Search

    @classmethod
    def from_node(cls, node: Node, reader: Reader) -> Sought | None:
        kinds = searches()
        if node.kind == "scalar":  # a kind without settings
            kind_node, rest = node, Node(node.place, "mapping")
        else:
            if node.kind != "mapping" or "kind" not in node.entries:
                reader.fault("E103", "a search says its `kind`", node, f"of {', '.join(kinds)}")
                return None
            kind_node = node.entries["kind"]
            inner = {key: entry for key, entry in node.entries.items() if key != "kind"}
            rest = Node(node.place, "mapping", entries=inner, keys=dict(node.keys))
        if kind_node.kind != "scalar" or kind_node.text not in kinds:
            complaint = f"no search is called `{kind_node.text}`"
            reader.fault(
                "E110", complaint, kind_node, suggest(kind_node.text, kinds, "write one of")
            )
            return None
        search = reader.record(kinds[kind_node.text], rest, kind_node.text)
        return None if search is None else cls(search)

    @classmethod
    def json_schema(cls, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        kinds = []
        for word, kind in searches().items():
            kind_fields = fields_of(cast(Any, kind))
            bodies = {key: schema(hint) for key, (_, hint, _) in kind_fields.items()}
            kinds.append({
                "type": "object", "description": (kind.__doc__ or "").split("\n")[0],
                "properties": {"kind": {"const": word}, **bodies}, "required": ["kind"],
                "additionalProperties": False,
            })  # fmt: skip
        return {"anyOf": [{"enum": [*searches()]}, *kinds]}
