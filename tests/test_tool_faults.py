"""Which kind of tool-call fault a reply counts as: judged on the recorded cases, read the way a run reads them."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from agent.errors import ModelError, ModelErrorType, ToolCallError
from agent.llm.backends.base import Envelope, RawReply
from agent.llm.envelopes import decode, usage_of
from agent.llm.replies import read_reply
from agent.llm.tool_faults import fault_kind
from agent.state import ToolFault
from tests.support_wire import FIXTURES, tool_definition

CASES = {
    case["id"]: case
    for case in map(json.loads, (FIXTURES / "cases.jsonl").read_text(encoding="utf-8").splitlines())
}  # fmt: skip


def _kind(case: dict[str, Any], *, raw: str | None = None) -> ToolFault | None:
    """The fault of a case of which no call can be made. `raw` stands in for its body."""
    tools = [tool_definition(tool) for tool in case["tools"]]
    body, http = raw or case["raw"], case.get("http")
    completion_tokens = None
    try:
        if http:
            reply = RawReply(
                http["endpoint"], http["status"], http["content_type"], body, bool(http.get("stream")), 0.1
            )
            completion_tokens = usage_of(reply).completion_tokens
            envelope = decode(reply)
        else:
            envelope = Envelope(content=body, finish="stop")
        read_reply(envelope, tools=tools)
    except ModelError as error:
        return fault_kind(error, tools_offered=bool(tools), completion_tokens=completion_tokens)
    raise AssertionError("the case can be used as it is")


@pytest.mark.parametrize(
    ("case", "kind"),
    [
        ("name-01", "wrong_name"),
        ("nat-06", "wrong_name"),
        ("args-01", "bad_arguments"),
        ("args-05", "bad_arguments"),
        ("nat-08", "bad_arguments"),
        ("nat-17", "bad_arguments"),
        ("bare-09", "bad_arguments"),
        ("tag-12", "bad_arguments"),
        ("xml-05", "bad_arguments"),
        ("srv-09", "bad_arguments"),
        ("srv-11", "bad_arguments"),
        ("trn-01", "truncated"),
        ("trn-03", "thinking_ate_budget"),
        ("use-08", "thinking_ate_budget"),
        ("thk-02", "thinking_ate_budget"),
        ("thk-11", "thinking_ate_budget"),
        ("trn-12", None),
    ],
)
def test_a_case_counts_as_its_kind(case: str, kind: ToolFault | None) -> None:
    assert _kind(CASES[case]) == kind


def test_a_call_that_the_server_threw_away_is_lost_and_an_end_token_alone_is_not() -> None:
    empty = CASES["trn-12"]
    with_tools = {**empty, "tools": CASES["tag-04"]["tools"]}
    thrown_away = empty["raw"].replace('"eval_count":1}', '"eval_count":27}')
    assert thrown_away != empty["raw"]
    assert _kind(with_tools, raw=thrown_away) == "lost_by_server"
    assert _kind(with_tools) is None
    assert _kind(empty, raw=thrown_away) is None


def test_without_a_count_nothing_is_said_to_be_lost() -> None:
    assert fault_kind(ModelError("empty_reply", ""), tools_offered=True, completion_tokens=None) is None


@pytest.mark.parametrize("error_type", get_args(ModelErrorType))
def test_every_error_of_one_tool_call_has_a_kind_and_json_that_was_asked_for_has_none(
    error_type: ModelErrorType,
) -> None:
    kind = fault_kind(ToolCallError(error_type, ""), tools_offered=False, completion_tokens=None)
    assert (kind is None) == (error_type in ("not_json", "schema_mismatch", "empty_reply", "repetition"))
    assert kind is None or kind in get_args(ToolFault)
