"""The policy: a rule for a tool over one for its effect over the defaults, and no rule that protects nobody."""

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.guards.approvals import EFFECTS, Policy, check_rules, defaults, parse_rules, rules_of_run
from agent.state import Permission
from agent.tools.base import Effect, Tool, ToolContext
from agent.tools.write_file import WriteFile, WriteFileParams


class Outside(Tool[WriteFileParams]):
    """A tool whose work nothing of ours contains."""

    description = "Works elsewhere."
    contained = False
    params = WriteFileParams

    def run(self, params: WriteFileParams, context: ToolContext) -> str:
        return params.path


class Writes(Outside):
    name = "post_letter"
    effect = "write"


class Executes(Outside):
    name = "ask_server"
    effect = "execute"


class Reads(Outside):
    name = "read_letter"
    effect = "read"


TOOLS = (WriteFile(), Writes(), Executes(), Reads())


@pytest.mark.parametrize("own_workspace", [True, False])
@pytest.mark.parametrize("isolated", [True, False])
def test_writes_are_allowed_in_a_folder_of_the_runs_own_and_execution_where_it_is_isolated(
    own_workspace: bool, isolated: bool
) -> None:
    assert defaults(own_workspace=own_workspace, isolated=isolated) == {
        "read": "allow",
        "write": "allow" if own_workspace else "ask",
        "execute": "allow" if isolated else "ask",
        "network": "allow",
    }


def test_a_run_has_a_rule_for_every_effect_and_for_tools_that_nothing_contains() -> None:
    rules = rules_of_run({}, TOOLS, own_workspace=True, isolated=True)
    assert set(EFFECTS) <= set(rules)
    policy = Policy(rules)
    assert policy.permission("write_file", "write") == "allow"
    assert policy.permission("execute_code", "execute") == "allow"
    assert policy.permission("post_letter", "write") == "ask"
    assert policy.permission("ask_server", "execute") == "ask"
    assert policy.permission("read_letter", "read") == "allow"


@pytest.mark.parametrize(
    ("rule", "letter", "server"),
    [
        ("write=allow", "ask", "ask"),  # said of what the workspace contains
        ("write=deny", "deny", "ask"),
        ("post_letter=allow", "allow", "ask"),
        ("execute=allow", "ask", "ask"),
        ("execute=deny", "ask", "deny"),
        ("execute=deny,ask_server=allow", "ask", "allow"),
        ("execute=ask", "ask", "ask"),
        ("network=deny", "ask", "ask"),
    ],
)
def test_only_a_rule_of_its_own_allows_a_tool_that_nothing_contains(
    rule: str, letter: Permission, server: Permission
) -> None:
    policy = Policy(rules_of_run(parse_rules([rule]), TOOLS, own_workspace=True, isolated=True))
    assert policy.permission("post_letter", "write") == letter
    assert policy.permission("ask_server", "execute") == server


@pytest.mark.parametrize("effect", EFFECTS)
def test_older_traces_name_only_what_differed(effect: Effect) -> None:
    assert Policy().permission("some_tool", effect) == "allow"


@pytest.mark.parametrize(
    ("tool", "effect", "permission"),
    [
        ("write_file", "write", "allow"),  # its own rule, though that of its effect is stricter
        ("manage_path", "write", "ask"),
        ("execute_code", "execute", "deny"),  # its own rule, where its effect has none
        ("read_file", "read", "allow"),
    ],
)
def test_a_rule_for_a_tool_stands_over_one_for_its_effect(tool: str, effect: Effect, permission: Permission) -> None:
    rules = parse_rules(["write=ask,write_file=allow", " execute_code = deny "])
    assert Policy(rules).permission(tool, effect) == permission


def test_rules_are_read_from_several_texts() -> None:
    assert parse_rules([]) == {}
    assert parse_rules(["write=ask,network=deny", "clock=allow", "write=ask"]) == {
        "write": "ask",
        "network": "deny",
        "clock": "allow",
    }


@pytest.mark.parametrize("text", ["", "write", "write=", "=ask", "write=maybe", "write=Ask", "write=ask,", "write:ask"])
def test_what_is_no_rule_is_told_with_the_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"is no rule: .* one of allow, ask, deny \(write=ask\)"):
        parse_rules([text])


def test_rules_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(UsageError, match="'write' is both ask and deny"):
        parse_rules(["write=ask", "write=deny"])


def test_an_error_shows_hostile_text_short_and_printable() -> None:
    hostile = "\x1b[2J\u202e" + "x" * 100_000
    for wrong in (lambda: parse_rules([hostile]), lambda: check_rules({hostile: "ask"}, ["clock"])):
        with pytest.raises(UsageError) as caught:
            wrong()
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < 300


def test_a_rule_for_what_is_not_there_is_refused_with_what_is() -> None:
    check_rules({"write": "ask", "network": "deny", "write_file": "deny"}, ["clock", "write_file"])
    with pytest.raises(UsageError) as caught:
        check_rules({"write": "ask", "write_fiel": "deny"}, ["clock", "write_file"])
    message = str(caught.value)
    assert "'write_fiel' is neither an effect nor a tool (did you mean write_file?)" in message
    assert "an effect (read, write, execute, network) or a tool (clock, write_file)" in message
