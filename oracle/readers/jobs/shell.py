"""A shell script or a batch script: its variables, and the flags of the training it launches.

Nothing is run. Variables, arrays, defaults and arithmetic are followed, branches are taken where
their test can be decided, and so is the first turn of a loop; notes name the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from oracle.readers.jobs import deepspeed
from oracle.readers.jobs.arguments import settings_of
from oracle.readers.jobs.conditions import truth
from oracle.readers.jobs.sheet import Piece, Sheet
from oracle.readers.jobs.tokens import MOST_WORDS, Command, Tokens, Values
from oracle.spec.document import Fault, Place, SpecError

TITLE = "shell or batch script that launches a training"
PRECEDENCE = 3

_LAUNCHES = re.compile(
    r"torchrun|\bsrun\b|\bsbatch\b|#SBATCH|deepspeed|mpirun|python|accelerate|^\s*(export\s+)?\w+="
    r"|(^|\s)--[a-z]", re.MULTILINE
)  # fmt: skip
_SET = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?(\+?)=(.*)", re.DOTALL)
_DIRECTIVE = re.compile(r"^\s*#SBATCH\s+(.*)$")
_SHORT = {"-N": "nodes", "-n": "ntasks", "-np": "np", "-G": "gpus", "-c": "cpus_per_task"}
_DECLARES = ("export", "declare", "local", "readonly", "typeset")
_SILENT = ("echo", "printf", "cat", "mkdir", "tee", "ls", "rm", "cp", "cd", "source", ".", "exit",
           "set", "module", "conda", "unset", "shift", "read", "return", "pip", "wget")  # fmt: skip
# flags of launchers that say how many processes start; they precede the script
STARTED = ("nodes", "nnodes", "num_nodes", "nproc_per_node", "num_gpus", "ntasks_per_node",
           "gpus_per_node", "ntasks", "np", "num_processes", "gres", "gpus")  # fmt: skip
SLURM = {"nodes": ("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), "gpus_per_node":
         ("SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"), "ntasks": ("SLURM_NTASKS",),
         "ntasks_per_node": ("SLURM_NTASKS_PER_NODE",)}  # fmt: skip


def recognises(text: str) -> bool:
    return bool(_LAUNCHES.search(text))


def parse(text: str, name: str, sheet: Sheet) -> None:
    Script(text, name, sheet).read()


@dataclass
class Frame:
    """An open `if`, `case` or loop: whether its lines hold now, and whether any branch held."""

    kind: str
    live: bool = True
    done: bool = False
    asking: bool = False  # whether its test, or the pattern of a case, is being read
    test: bool | None = True
    subject: str = ""


class Script:
    """One script; its variables stay set for the next file of the job."""

    def __init__(self, text: str, name: str, sheet: Sheet) -> None:
        self.text, self.name, self.sheet = text, name, sheet
        self.values: Values = sheet.shell
        self.open: list[Frame] = []
        self.launches: list[tuple[list[Piece], list[Piece]]] = []  # before and after the script
        self.skip = False  # whether the test before the next command skips it

    def read(self) -> None:
        for number, line in enumerate(self.text.splitlines(), 1):
            if directive_line := _DIRECTIVE.match(line):
                words = [(word, number) for word in directive_line[1].partition(" #")[0].split()]
                self._starts(words, directive=True)
        for command in Tokens(self.text, self.name, self.values).commands():
            self._command(command)
        self._settle()

    @property
    def live(self) -> bool:
        return all(frame.live and not frame.asking for frame in self.open)

    # ------------------------------------------------- what is launched

    def _settle(self) -> None:
        """Take the launch with most flags, or without one the variable with most flags."""
        chosen = max(
            self.launches, key=lambda launch: len(list(settings_of(launch[1]))), default=None
        )
        if chosen is None or not list(settings_of(chosen[1])):
            flag_values = [
                value for value in self.values.values() if len(list(settings_of(value))) > 2
            ]
            longest = max(flag_values, key=lambda value: len(list(settings_of(value))), default=[])
            chosen = (chosen[0] if chosen else [], longest)
        script = next((p for p in chosen[0] if p[0].endswith(".py")), None)
        if script:
            self.sheet.started("script", script[0], self.name, script[1])
        self._starts(chosen[0])
        for flag, value, line in settings_of(chosen[1]):
            self.sheet.add(flag, value, self.name, line)

    def _starts(self, pieces: list[Piece], directive: bool = False) -> None:
        words: list[Piece] = []
        for word, line in pieces:
            short = re.fullmatch(r"(-(?:N|np|n|G|c))(\d*)", word)
            words.append((f"--{_SHORT[short[1]]}", line) if short else (word, line))
            words += [(short[2], line)] if short and short[2] else []
        for flag, value, line in settings_of(words):
            plain = flag.replace("-", "_")
            if plain not in STARTED:
                continue
            self.sheet.started(plain, value, self.name, line)
            for variable in SLURM.get(plain, ()) if directive else ():
                self.values.setdefault(variable, [(value, line)])

    def _launch(self, pieces: list[Piece]) -> None:
        """Note a command that may be the training: its script ends the launcher's flags."""
        words = [word for word, _ in pieces]
        module = next((i + 1 for i, word in enumerate(words[:-1])
                       if word == "-m" and not words[i + 1].startswith("torch.distributed")),
                      None)  # fmt: skip
        script = next((i for i, word in enumerate(words) if word.endswith(".py")), module)
        if script is None:
            script = next((i for i, w in enumerate(words) if w.endswith((".sh", "torchrun"))), 0)
            self.launches.append((pieces, pieces[script + 1 :]))
        else:
            self.launches.append((pieces[: script + 1], pieces[script + 1 :]))
        if len(self.launches) > 1000:
            raise self._stop("more than a thousand commands are launched", pieces[0][1])

    def _stop(self, complaint: str, line: int) -> SpecError:
        return SpecError(self.name, [Fault("E108", complaint, Place(line, 1))], self.text)

    # ------------------------------------------------- commands

    def _command(self, command: Command) -> None:
        words = list(command.words)
        while words and self._word_of_control(words, command):
            if not words:
                break
        if words:
            self._plain(words, command)
        elif command.end == ";;" and self.open and self.open[-1].kind == "case":
            self.open[-1].asking = True
        if command.end == ";;" and self.open and self.open[-1].kind == "case":
            self.open[-1].asking = True

    def _word_of_control(self, words: list[list[Piece]], command: Command) -> bool:
        """Step over one word that opens, turns or closes a block; return False without one."""
        first = words[0][0][0] if len(words[0]) == 1 else ""
        frame = self.open[-1] if self.open else None
        if first in ("if", "while", "until", "for", "case", "elif"):
            self._opened(first, words, command, frame)
        elif first in ("then", "do") and frame:
            self._decided(frame, command)
            words.pop(0)
        elif first == "else" and frame:
            frame.live = not frame.done
            words.pop(0)
        elif first in ("fi", "done", "esac") and frame:
            self.open.pop()
            words.clear()
        elif first in ("{", "}", "!", "time", "exec"):
            words.pop(0)
        elif first == "function":
            del words[:2]
        elif frame and frame.kind == "case" and frame.asking:
            self._pattern(frame, words, command)
        else:
            return False
        return True

    def _opened(
        self, first: str, words: list[list[Piece]], command: Command, frame: Frame | None
    ) -> None:
        if len(self.open) > 100:
            raise self._stop("blocks nest more than a hundred deep", command.line)
        if first == "elif":
            if frame:
                frame.asking, frame.test = True, None if frame.done else True
            words.pop(0)
        elif first == "for":
            loop_values = [word for part in words[3:] for word, _ in part]
            if self.live and len(words) > 1 and loop_values:
                if len(loop_values) > 1:
                    self._note(command, f"`{words[1][0][0]}` takes several values: the first is "
                                        "read, --set another")  # fmt: skip
                self._set(words[1][0][0], [(loop_values[0], command.line)])
            self.open.append(Frame("for", live=bool(loop_values)))
            words.clear()
        elif first == "case":
            subject = words[1][0][0] if len(words) > 1 else ""
            self.open.append(Frame("case", live=False, asking=True, subject=subject))
            del words[:3]
        else:
            self.open.append(Frame(first, asking=first == "if"))
            words.pop(0)
            if first != "if":
                words.clear()

    def _decided(self, frame: Frame, command: Command) -> None:
        if frame.kind != "if":
            return
        frame.asking = False
        outer = all(outer_frame.live for outer_frame in self.open[:-1])
        if frame.test is None and not frame.done and outer:
            self._note(command, "its test cannot be decided here: the branch is left out")
        frame.live = frame.test is True and not frame.done
        frame.done = frame.done or frame.live

    def _pattern(self, frame: Frame, words: list[list[Piece]], command: Command) -> None:
        """Read one pattern of `a|b)`; the last of them ends with the bracket."""
        patterns = [piece for piece, _ in words[0]]
        if not frame.done and (frame.subject in patterns or "*" in patterns):
            frame.live = frame.done = True
        elif command.end == ")":
            frame.live = frame.live and frame.done and frame.test is None
        words.clear()
        frame.test = None if command.end == "|" else True
        if command.end == ")":
            frame.asking = False

    def _plain(self, words: list[list[Piece]], command: Command) -> None:
        first = words[0][0][0]
        frame = self.open[-1] if self.open else None
        if first in ("[", "[[", "test") or first == "((":
            inside = ["".join(piece for piece, _ in word) for word in words[1:]]
            outcome = truth([word for word in inside if word not in ("]", "]]")])
            if frame and frame.asking and frame.kind == "if":
                self._tested(frame, outcome, command)
            else:
                required = {"&&": True, "||": False}.get(command.end)
                self.skip = required is not None and outcome is not required
            return
        if frame and frame.asking:
            frame.test = None
            return
        skip, self.skip = self.skip, False
        if not self.live or skip:
            return
        if first in _DECLARES:
            words = [word for word in words[1:] if not word[0][0].startswith("-")]
            first = ""
        while words and (assignment := _SET.fullmatch(words[0][0][0])):
            self._assign(assignment, words[0])
            words = words[1:]
        if first and words and words[0][0][0] not in _SILENT:
            self._launch([piece for word in words for piece in word if piece[0]])
        if command.body.lstrip()[:1] == "{":
            self._embedded(command)

    def _tested(self, frame: Frame, outcome: bool | None, command: Command) -> None:
        """Combine a test with those before it: `&&` needs all, `||` one; an unknown stays open."""
        if frame.subject == "||":
            frame.test = True if True in (frame.test, outcome) else None if None in (
                frame.test, outcome) else False  # fmt: skip
        elif False in (frame.test, outcome):
            frame.test = False
        else:
            frame.test = None if None in (frame.test, outcome) else True
        frame.subject = command.end

    def _assign(self, assignment: re.Match[str], word: list[Piece]) -> None:
        name, more, rest = assignment.groups()
        value = [(rest, word[0][1])] if rest else []
        value += [piece for piece in word[1:] if piece[0]]
        if more:
            before = list(self.values.get(name, []))
            if rest and not rest.startswith("--") and before:
                before[-1] = before[-1][0] + rest, before[-1][1]
                value = value[1:]
            value = before + value
        self._set(name, value)

    def _set(self, name: str, value: list[Piece]) -> None:
        if len(value) > MOST_WORDS or sum(len(word) for word, _ in value) > 2**20:
            raise self._stop(f"`{name[:40]}` grows beyond what a command line can hold", 1)
        if name not in self.sheet.variables:
            self.values[name] = value

    def _embedded(self, command: Command) -> None:
        """Read a configuration that the script writes for itself."""
        plain_values = {
            name: " ".join(text for text, _ in value) for name, value in self.values.items()
        }
        text = re.sub(r"\$\{?(\w+)\}?", lambda m: plain_values.get(m[1], m[0])[:200], command.body)
        if deepspeed.recognises(text):
            deepspeed.parse(text, self.name, self.sheet, command.body_line)

    def _note(self, command: Command, remark: str) -> None:
        self.sheet.notes.append(f"{self.name}:{command.line}: {remark}")
