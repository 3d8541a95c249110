"""two_phase against an Ollama made of bytes: what each phase sends, and what recorded replies become."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agent.llm.backends.ollama import OllamaBackend
from agent.loop import run_task
from agent.state import AgentState
from evals.verify import verify
from tests.support_recordings import RECORDINGS
from tests.support_runs import new_run
from tests.support_wire import Answer, Seen, Wire, chunk, chunked_head, http_reply, serving

THOUGHT = "I calculate the product first."


def rendered(messages: list[dict[str, Any]]) -> str:
    """A conversation as a ChatML template renders it, open for the reply."""
    turns = [f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages]
    return "".join(turns) + "<|im_start|>assistant\n"


def tags(name: str) -> str:
    return json.dumps({"models": [{"name": name, "model": name, "capabilities": ["completion"]}]})


def ollama(arrays: list[list[dict[str, Any]]]) -> Answer:
    """An Ollama whose model thinks the same every time, and then writes the next of the arrays."""
    left = iter(arrays)

    def counted(text: str) -> dict[str, Any]:
        return {"done": True, "done_reason": "stop", "prompt_eval_count": len(text) // 4, "eval_count": 9}

    def answer(seen: Seen) -> Iterator[bytes]:
        if seen.path == "/api/version":
            yield http_reply('{"version":"0.32.15"}')
        elif seen.path == "/api/tags":
            yield http_reply(tags("tiny:latest"))
        elif seen.path == "/api/show":
            yield http_reply("{}")
        elif seen.path == "/api/generate":
            array = json.dumps(next(left))
            yield http_reply(json.dumps({"response": array, **counted(seen.json["prompt"])}))
        elif seen.json.get("_debug_render_only"):
            prompt = rendered(seen.json["messages"])
            yield http_reply(json.dumps({"message": {}, "_debug_info": {"rendered_template": prompt}}))
        else:
            lines = [{"message": {"role": "assistant", "content": word}} for word in THOUGHT.partition(" ")]
            last = {"message": {"role": "assistant", "content": ""}, **counted(rendered(seen.json["messages"]))}
            yield chunked_head()
            yield from (chunk(json.dumps(line).encode() + b"\n") for line in (*lines, last))
            yield chunk(b"")

    return answer


def run(wire: Wire, model: str = "tiny", **more: Any) -> AgentState:
    state = run_task(new_run(OllamaBackend(wire.url, model), strategy_name="two_phase", **more))
    assert verify(state) == []
    return state


def test_thinking_is_streamed_by_chat_and_the_actions_go_on_from_it_by_generate() -> None:
    product = {"tool": "calculate_math", "args": {"expression": "6*7"}}
    with serving(ollama([[product], [{"tool": "finish", "args": {"summary": "42"}}]])) as wire:
        state = run(wire)
    assert (state.status, state.answer, state.steps[0].thinking) == ("completed", "42", THOUGHT)
    assert [(call.endpoint, call.streamed) for call in state.calls] == [
        ("/api/chat", True),
        ("/api/generate", False),
    ] * 2
    think, render, act = [seen.json for seen in wire.seen if seen.method == "POST" and seen.path != "/api/show"][:3]
    assert (think["stream"], think["options"]["stop"]) == (True, ["</think>"])
    assert render["messages"] == think["messages"]
    assert act["prompt"] == f"{rendered(think['messages'])}<think>\n{THOUGHT}\n</think>\n"
    assert (act["raw"], act["format"]["type"], act["format"]["maxItems"]) == (True, "array", 4)
    recorded = RECORDINGS["two_phase_act_raw"].request["body"]
    assert recorded.keys() <= act.keys()
    assert recorded["format"].keys() == act["format"].keys()


def test_the_recorded_replies_of_a_real_model_make_a_run() -> None:
    def answer(seen: Seen) -> Iterator[bytes]:
        name = "two_phase_act_raw" if seen.path == "/api/generate" else "two_phase_think"
        if seen.path == "/api/chat" and seen.json.get("_debug_render_only"):
            name = "chat_debug_render_only"
        yield from RECORDINGS["tags" if seen.path == "/api/tags" else name].answer(seen)

    with serving(answer) as wire:
        state = run(wire, "smollm2:135m", task="Read notes.txt", evidence=False)
    assert state.steps[0].thinking.startswith("I'm ready to assist.")
    assert (state.status, state.answer) == ("completed", "1000000,")
