"""What every kind of search has in common: stages of trials, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, cast

from oracle.run.waves import at_once
from oracle.spec.document import Node, suggest
from oracle.spec.schema import Between, Clash, Reader, fields_of

MOST = 2**20  # trials
Trials = Annotated[int, Between(1, MOST)]


@dataclass(frozen=True, slots=True)
class Stage:
    """Trials that depend on none of each other, and on all of the stage before."""

    name: str
    trials: int
    share: float = 1.0  # of a whole training, that each of them takes
    times: int = 1  # so many such stages, one after the other


@dataclass(frozen=True)
class Search:
    """A way to find or to make models with many trainings; its fields are its settings."""

    source: ClassVar[str] = ""
    noun: ClassVar[str] = "trials"  # what `trials` counts
    free: ClassVar[bool] = False  # whether it may do without being told how many
    resizes: ClassVar[bool] = False  # whether trials of each stage may have other sizes

    def stages(self, trials: int | None, at_once: int) -> list[Stage]:
        """What is run, with so many trials at once at most."""
        raise NotImplementedError

    def widths(self, trials: int | None, most: int) -> set[int]:
        """Numbers of trials at once that are worth a look: the fewest for each number of waves."""
        found: set[int] = set()
        for stage in self.stages(trials, most):
            found |= {min(each, most) for each in steps(stage.trials)}
        return found

    def wrong(self, trials: int | None) -> Iterator[Clash]:
        """Settings that do not go together, or not with so many trials."""
        if trials is None and not self.free:
            what = f"nobody says how many {self.noun}"
            yield Clash("trials", what, "--trials, or `trials:`")

    @property
    def resized(self) -> bool:
        """Whether each stage is given the size of trial that suits it."""
        return type(self).resizes

    @classmethod
    def kind(cls) -> str:
        """The word for it in a spec and on the command line."""
        return cls.__name__.lower()

    def settings(self) -> dict[str, Any]:
        """Its fields as data."""
        return {one.name: getattr(self, one.name) for one in fields(self)}


def steps(trials: int) -> set[int]:
    """⌈R/w⌉ for every number w of waves."""
    found, waves = set(), 1
    while waves <= trials:
        width = at_once(trials, waves)
        found.add(width)
        # the fewest waves of the next narrower width
        waves = trials + 1 if width == 1 else -(-trials // (width - 1))
    return found


def searches() -> dict[str, type[Search]]:
    """Name -> kind of search; one defined elsewhere is here the moment it exists."""
    return {cls.kind(): cls for cls in sorted(Search.__subclasses__(), key=lambda one: one.kind())}


@dataclass(frozen=True)
class Sought:
    """A search as a spec says it: a kind, or `{kind: …, setting: …}`."""

    search: Search

    @classmethod
    def from_node(cls, node: Node, reader: Reader) -> Sought | None:
        known = searches()
        if node.kind == "scalar":  # a kind with nothing more to say
            given, rest = node, Node(node.place, "mapping")
        else:
            if node.kind != "mapping" or "kind" not in node.entries:
                reader.fault("E103", "a search says its `kind`", node, f"of {', '.join(known)}")
                return None
            given = node.entries["kind"]
            inner = {key: one for key, one in node.entries.items() if key != "kind"}
            rest = Node(node.place, "mapping", entries=inner, keys=dict(node.keys))
        if given.kind != "scalar" or given.text not in known:
            what = f"no search is called `{given.text}`"
            reader.fault("E110", what, given, suggest(given.text, known, "write one of"))
            return None
        found = reader.record(known[given.text], rest, given.text)
        return None if found is None else cls(found)

    @classmethod
    def json_schema(cls, schema: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        kinds = []
        for word, kind in searches().items():
            known = fields_of(cast(Any, kind))
            bodies = {key: schema(hint) for key, (_, hint, _) in known.items()}
            kinds.append({
                "type": "object", "description": (kind.__doc__ or "").split("\n")[0],
                "properties": {"kind": {"const": word}, **bodies}, "required": ["kind"],
                "additionalProperties": False,
            })  # fmt: skip
        return {"anyOf": [{"enum": [*searches()]}, *kinds]}
