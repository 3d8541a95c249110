"""What a competent model would do in each case of a suite: `fixtures/competent/SUITE.yaml`, read and looked up.

Of each user's turn a plan names the calls to make and the answer to give. An action's `shows` is a piece of its result:
where that stands in the prompt, the action is done. So a plan's reader knows how far a conversation has come from what
a model can see, whatever the strategy that holds it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evals.cases import Case, load_suite

ROOT = Path(__file__).resolve().parent.parent
PLANS = Path(__file__).parent / "fixtures" / "competent"
_BUDGET = re.compile(r"^Budget: .*$", re.MULTILINE)  # its numbers are no results


@dataclass(frozen=True)
class Action:
    """One call, and what of its result shows that it was made (None: its result is not looked for)."""

    tool: str
    args: dict[str, Any]
    shows: str | None = None


@dataclass(frozen=True)
class Turn:
    """What is due in one of the user's turns: actions, those in one tuple at once, then the answer.

    `answer` is None where the model is not to be asked for one.
    """

    text: str
    actions: tuple[tuple[Action, ...], ...]
    answer: str | None

    def left(self, seen: str) -> tuple[tuple[Action, ...], ...]:
        """The actions that are not done yet, where a prompt says `seen` after the turn's text."""
        groups = (tuple(action for action in group if not _is_done(action, seen)) for group in self.actions)
        return tuple(group for group in groups if group)


def _is_done(action: Action, seen: str) -> bool:
    if action.shows is None:
        return False
    return re.search(rf"(?<![\w.]){re.escape(action.shows)}(?!\w)", _BUDGET.sub("", seen)) is not None


@dataclass(frozen=True)
class Plans:
    """The plans of a suite's cases by their ids, found by what the user says in them."""

    cases: dict[str, tuple[Turn, ...]]

    def place(self, prompt: str) -> tuple[Turn, str]:
        """The turn that a prompt is about, and all that stands after its text. The user's latest words decide.

        Raises:
            LookupError: the prompt holds no turn of any case.
        """
        best, chosen = (-1, 0, 0, False), None
        for turns in self.cases.values():
            for number, turn in enumerate(turns):
                if (at := prompt.rfind(turn.text)) >= 0:
                    told_before = sum(earlier.text in prompt for earlier in turns[:number])
                    rank = (at + len(turn.text), len(turn.text), told_before, turn.answer is not None)
                    if rank > best:
                        best, chosen = rank, turn
        if chosen is None:
            raise LookupError("the prompt holds no turn of any case")
        return chosen, prompt[best[0] :]


def load_plans(suite: str) -> Plans:
    """The plans of `suites/SUITE.yaml`."""
    plans = yaml.safe_load((PLANS / f"{suite}.yaml").read_text(encoding="utf-8"))
    cases = load_suite(ROOT / "suites" / f"{suite}.yaml").cases
    assert sorted(plans) == sorted(case.id for case in cases), "every case has its plan"
    return Plans({case.id: _conversation(case, plans[case.id]) for case in cases})


def _conversation(case: Case, turns: list[dict[str, Any]]) -> tuple[Turn, ...]:
    texts = (case.first_turn, *case.follow_ups)
    assert len(turns) == len(texts), case.id
    return tuple(_turn(text, turn) for text, turn in zip(texts, turns, strict=True))


def _turn(text: str, turn: dict[str, Any]) -> Turn:
    together = [group if isinstance(group, list) else [group] for group in turn.get("actions", [])]
    actions = tuple(tuple(Action(**action) for action in group) for group in together)
    return Turn(text.strip(), actions, turn.get("answer"))
