"""The order of a pipeline: what each stage does, pass by pass.

A schedule is one function: it lists the turns of one stage, by the number of stages, of
micro-batches and of chunks a stage holds. `oracle.plan.player` says when everything happens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

KINDS = ("forward", "backward", "input", "weight")  # of turns
ROUNDS = 4  # micro-batches a stage after which a schedule repeats itself


class Turn(NamedTuple):
    """One pass of one micro-batch through one of a stage's chunks.

    A backward pass is one turn, or two: the gradient of the input, which the chunk before waits
    for, and that of the weights, which nobody waits for. Two turns may be `joined`: they begin
    when both can, and others have what they made when both are over.
    """

    kind: str
    micro: int
    chunk: int
    joined: bool = False  # to the turn before

    @property
    def makes(self) -> tuple[str, ...]:
        """What is there once it is over."""
        return ("input", "weight") if self.kind == "backward" else (self.kind,)


Order = Callable[[int, int, int, int], list[Turn]]  # (stage, stages, micro-batches, chunks)
Ahead = Callable[[int, int, int, int], int]  # of the same


@dataclass(frozen=True, slots=True)
class Schedule:
    """The order of a pipeline, where it places the chunks, and what it needs.

    Chunks are dealt to the stages round by round, or in a V: down the stages and back up.
    """

    name: str
    order: Order
    placement: str = "round"  # or "V"
    chunks: int | None = None  # that a stage must hold; None: any number
    rounds: int = 0  # at least so many micro-batches a stage
    # passes forward before the one that the first pass back follows, where all turns are these
    # passes ahead, then one forward and one back in turn, then the rest of those back
    ahead: Ahead | None = None

    def fits(self, stages: int, micro_batches: int, chunks: int) -> bool:
        """Whether it can order them: rounds of several chunks are of a micro-batch a stage."""
        even_rounds = chunks == 1 or self.placement == "V" or micro_batches % stages == 0
        return even_rounds and self.chunks in (None, chunks)

    def place(self, chunk: int, stage: int, stages: int) -> int:
        """Where along the model a stage's chunk lies; the model begins at 0."""
        back = self.placement == "V" and chunk % 2
        return chunk * stages + (stages - 1 - stage if back else stage)


SCHEDULES: dict[str, Schedule] = {}
NAMES: list[str] = []  # as plans write them; a plan keeps a name by its number here


def schedule(
    name: str,
    *,
    placement: str = "round",
    chunks: int | None = None,
    rounds: int = 0,
    ahead: Ahead | None = None,
) -> Callable[[Order], Order]:
    """Enter a function under the name that plans call it by, with what it needs."""

    def enter(order: Order) -> Order:
        SCHEDULES[name] = Schedule(name, order, placement, chunks, rounds, ahead)
        if name not in NAMES:
            NAMES.append(name)
        return order

    return enter


@schedule("gpipe", ahead=lambda stage, stages, micro_batches, chunks: micro_batches * chunks - 1)
def gpipe(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
    """All passes forward, then all back [huang2019, §2.3]."""
    total = micro_batches * chunks
    ahead = [_turn("forward", k, stages, chunks) for k in range(total)]
    return ahead + [_turn("backward", k, stages, chunks) for k in range(total)]


def _ahead(stage: int, stages: int, micro_batches: int, chunks: int) -> int:
    """Passes forward of a stage before its first pass back can begin, but for the one itself."""
    ahead = (stages - 1 - stage) * (1 if chunks == 1 else 2) + (chunks - 1) * stages
    return min(micro_batches * chunks, ahead)


@schedule("1f1b", ahead=_ahead)
def one_forward_one_backward(
    stage: int, stages: int, micro_batches: int, chunks: int
) -> list[Turn]:
    """A few passes ahead, then forward and backward in turn [narayanan2021, §2.2].

    With chunks, a micro-batch a stage goes through one chunk before any goes through the next.

    >>> "".join(t.kind[0] + str(t.micro) for t in one_forward_one_backward(0, 2, 3, 1))
    'f0f1b0f2b1b2'
    """
    total = micro_batches * chunks
    ahead = _ahead(stage, stages, micro_batches, chunks)
    turns = [_turn("forward", k, stages, chunks) for k in range(ahead)]
    for k in range(ahead, total):
        turns.append(_turn("forward", k, stages, chunks))
        turns.append(_turn("backward", k - ahead, stages, chunks))
    return turns + [_turn("backward", k, stages, chunks) for k in range(total - ahead, total)]


def _turn(kind: str, k: int, stages: int, chunks: int) -> Turn:
    """The k-th pass of a kind: `stages` micro-batches through a chunk, then through the next."""
    if chunks == 1:
        return Turn(kind, k, 0)
    group, inside = divmod(k, stages * chunks)
    chunk = inside // stages
    micro = group * stages + inside % stages
    return Turn(kind, micro, chunk if kind == "forward" else chunks - 1 - chunk)


@schedule("zb-h1", chunks=1)
def zero_bubble_h1(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
    """1F1B with the backward pass in two: weights `stage` turns late [qi2024, §2.1].

    Every stage keeps at most p micro-batches, as the first does under 1F1B. The bubble is
    (p - 1)(F + B - W) where 1F1B has (p - 1)(F + B + W), with B the gradient of the input alone.

    >>> "".join(t.kind[0] + str(t.micro) for t in zero_bubble_h1(1, 2, 3, 1))
    'f0i0f1i1w0f2i2w1w2'
    """
    ahead, late = min(micro_batches, stages - 1 - stage), min(micro_batches, stage)
    turns = [Turn("forward", k, 0) for k in range(ahead)]
    for k in range(micro_batches):
        if k + ahead < micro_batches:
            turns.append(Turn("forward", k + ahead, 0))
        turns.append(Turn("input", k, 0))
        if k >= late:
            turns.append(Turn("weight", k - late, 0))
    return turns + [Turn("weight", k, 0) for k in range(micro_batches - late, micro_batches)]


@schedule("zb-v", placement="V", chunks=2)
def zero_bubble_v(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
    """Two chunks a stage, in a V: no bubble where F = B = W [qi2024; qi2024memory].

    Then a stage never waits between its first turn and its last, from 2p - 1 micro-batches on; it
    keeps 2p chunks, p micro-batches, as the first stage does under 1F1B. As published, each stage
    begins its next iteration on its own and the update is validated later; here an iteration is
    over when the last stage is done, so the fill of p - 1 chunks remains.
    """
    micro_count = max(micro_batches, 2 * stages - 1)
    turns = _Counted(micro_batches)
    turns.add("f0", 2 * (stages - stage) - 1)
    turns.add("f1 f0", stage)
    turns.add("f1 i1 w1", stages - stage)
    turns.add("f0 i0 w0 f1 i1 w1", micro_count - turns.done("f0"))
    turns.add("i0 w0 f1 i1 w1", micro_count - turns.done("f1"))
    turns.add("i0 i1", stage)
    turns.add("i0 w0", stages - stage)
    turns.add("w1", micro_count - turns.done("w1"))
    turns.add("w0", micro_count - turns.done("w0"))
    return turns.found


@schedule("dualpipe-v", placement="V", chunks=2, rounds=2)
def dual_pipe_v(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
    """DualPipe cut in half: in a V, forward and backward passes in pairs [deepseek2024].

    Where a stage would wait, at either end, backward passes are in two parts. It keeps 2p + 1
    chunks at most, and waits (p - 1)(F&B + B - 2W), here with the passes of a pair one after
    the other, F&B = F + B + W; DeepSeek runs each under the messages of the other.
    """
    micro_count = max(micro_batches, 2 * stages)
    after = stages - 1 - stage
    turns = _Counted(micro_batches)
    turns.add("f0", 2 * after)
    turns.add("f0 f1", stage + 1)
    turns.add("i1 w1 f1", after)
    turns.add("f0+b1 f1+b0", micro_count - 2 * stages + stage + 1)
    turns.add("b1 f1+b0", after)
    whole_passes = (stage + 1) // 2
    turns.add("b1 b0", whole_passes)
    late = []  # weights whose turn comes later, oldest first
    for k in range(2 * whole_passes, 2 * (stage + 1)):
        split = k > 2 * whole_passes or stage % 2 == 1
        chunk = 1 - k % 2
        turns.add(f"{'i' if split else 'b'}{chunk}", 1)
        late += [f"w{chunk}"] * split
    for _ in range(after):
        turns.add(late.pop(0), 1)
        turns.add("i0", 1)
        late.append("w0")
    for word in late:
        turns.add(word, 1)
    return turns.found


class _Counted:
    """Turns of two chunks, each kind counted through the micro-batches in their order."""

    def __init__(self, micro_batches: int) -> None:
        self.micro_batches = micro_batches
        self.found: list[Turn] = []
        self._next: dict[tuple[str, int], int] = {}

    def add(self, words: str, times: int) -> None:
        """`f0 b1`: the next pass forward through chunk 0, then the next one back through 1.

        `f0+b1` joins them. What lies beyond the micro-batches there are is counted and left out.
        """
        for word in words.split() * times:
            joined = False
            for kind, chunk in ((_LETTERS[part[0]], int(part[1])) for part in word.split("+")):
                for made_kind in Turn(kind, 0, chunk).makes:
                    micro = self._next.get((made_kind, chunk), 0)
                    self._next[made_kind, chunk] = micro + 1
                if micro < self.micro_batches:
                    self.found.append(Turn(kind, micro, chunk, joined))
                    joined = True

    def done(self, word: str) -> int:
        return self._next.get((_LETTERS[word[0]], int(word[1])), 0)


_LETTERS = {kind[0]: kind for kind in KINDS}


def needs(turn: Turn, place: int, places: int) -> Iterator[tuple[str, int, int]]:
    """The passes (kind, micro-batch, place) that must end before a turn can start.

    A pass forward waits for the chunk before; a pass back for the chunk after, the last for its
    own pass forward; a gradient of weights for that of its input.
    """
    if turn.kind == "forward":
        if place > 0:
            yield "forward", turn.micro, place - 1
    elif turn.kind == "weight":
        yield "input", turn.micro, place
    else:
        yield "forward", turn.micro, place
        if place < places - 1:
            yield "input", turn.micro, place + 1
