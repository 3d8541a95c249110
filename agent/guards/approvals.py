"""The policy of a run: which calls are made, which a person is asked about first, and which are never made.

Pure rules. Whoever runs the calls asks the person; what the model is told stands in `agent/prompts/notices.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from agent.errors import UsageError
from agent.state import Permission
from agent.tools.base import Effect, Tool

EFFECTS: tuple[Effect, ...] = get_args(Effect)
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

_CONTAINED: frozenset[Effect] = frozenset({"write", "execute"})  # by the workspace, by the sandbox
_MAX_SHOWN = 40


@dataclass(frozen=True)
class Policy:
    """Rules by a tool's name or by an effect. Their keys are to be checked first (`check_rules`).

    `rules_of_run` makes them whole; an effect that has none all the same is allowed, as in the traces of runs that
    wrote down only what differed.
    """

    rules: Mapping[str, Permission] = field(default_factory=dict)

    def permission(self, tool_name: str, effect: Effect) -> Permission:
        """What is to be done with a call of this tool: a rule for its name stands over one for its effect."""
        return self.rules.get(tool_name) or self.rules.get(effect) or "allow"


def defaults(*, own_workspace: bool, isolated: bool) -> dict[str, Permission]:
    """What is done with calls of each effect where nobody says otherwise.

    `own_workspace` is whether file tools write in a folder that was made for the run and not in a person's, `isolated`
    whether programs that a model wrote run where they can do no harm.
    """
    return {
        "read": "allow",
        "write": "allow" if own_workspace else "ask",
        "execute": "allow" if isolated else "ask",
        "network": "allow",
    }


def rules_of_run(
    given: Mapping[str, Permission], tools: Iterable[Tool[Any]], *, own_workspace: bool, isolated: bool
) -> dict[str, Permission]:
    """Every rule of a run: those that were given over the defaults.

    Tools that write or execute what nothing contains ask, unless a rule for the very tool allows it: a rule for an
    effect means what the workspace and the sandbox contain, and of other tools it can only forbid.
    """
    rules = {**defaults(own_workspace=own_workspace, isolated=isolated), **given}
    for tool in tools:
        if not tool.contained and tool.effect in _CONTAINED and tool.name not in given:
            rules[tool.name] = "deny" if rules[tool.effect] == "deny" else "ask"
    return rules


def parse_rules(texts: Sequence[str]) -> dict[str, Permission]:
    """The rules in texts of the form `write=ask,execute_code=deny`.

    Raises:
        UsageError: another form, or two rules of one key that contradict each other.
    """
    rules: dict[str, Permission] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        key, _, word = (piece.strip() for piece in part.partition("="))
        permission = next((permission for permission in PERMISSIONS if permission == word), None)
        if not key or permission is None:
            raise UsageError(
                f"--approve: {_shown(part)} is no rule: write an effect or a tool, '=', and one of "
                f"{', '.join(PERMISSIONS)} (write=ask)"
            )
        if rules.setdefault(key, permission) != permission:
            raise UsageError(f"--approve: {_shown(key)} is both {rules[key]} and {permission}: give it once")
    return rules


def check_rules(rules: Mapping[str, Permission], tool_names: Collection[str]) -> None:
    """Whether each rule is for an effect or for one of these tools: a misspelt rule would protect nobody.

    Raises:
        UsageError: a rule is for neither.
    """
    known = [*EFFECTS, *tool_names]
    for key in rules:
        if key not in known:
            near = difflib.get_close_matches(key[:_MAX_SHOWN], known, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise UsageError(
                f"approve: {_shown(key)} is neither an effect nor a tool{hint}: use an effect ({', '.join(EFFECTS)}) "
                f"or a tool ({', '.join(tool_names)})"
            )


def _shown(text: str) -> str:
    return ascii(text[:_MAX_SHOWN])
