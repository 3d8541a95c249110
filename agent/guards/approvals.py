"""The policy of a run: which calls are made, which a person is asked about first, and which are never made.

Pure rules. Whoever runs the calls asks the person; what the model is told stands in `agent/prompts/notices.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import get_args

from agent.errors import UsageError
from agent.state import Permission
from agent.tools.base import Effect

EFFECTS: tuple[Effect, ...] = get_args(Effect)
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)

# Writes reach the run's own workspace and nothing else. Execution is NOT isolated yet (see execute_code): until it is,
# `--approve execute=ask` is for models that are not trusted.
DEFAULTS: dict[Effect, Permission] = {"read": "allow", "write": "allow", "execute": "allow", "network": "allow"}

_MAX_SHOWN = 40


@dataclass(frozen=True)
class Policy:
    """Rules by a tool's name or by an effect, over the defaults. Their keys are to be checked first (`check_rules`)."""

    rules: Mapping[str, Permission] = field(default_factory=dict)

    def permission(self, tool_name: str, effect: Effect) -> Permission:
        """What is to be done with a call of this tool: a rule for its name stands over one for its effect."""
        return self.rules.get(tool_name) or self.rules.get(effect) or DEFAULTS[effect]


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
