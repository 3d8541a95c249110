"""The client with a real backend over a real socket: what is sent, what is charged; streaming changes neither."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from agent.budget import BudgetEnforcer, Limits
from agent.errors import BackendError, BudgetExceededError, ModelError, NotSentError
from agent.journal import NoJournal
from agent.llm.backends.ollama import OllamaBackend
from agent.llm.backends.openai import OpenAIBackend
from agent.llm.client import Ask, LLMClient
from agent.reporter import SilentReporter
from agent.state import AgentState, Message, ModelInfo, Sampling
from tests.support_runs import PRICES
from tests.support_wire import Seen, http_reply, serving

HELLO = (Message(role="system", content="Be brief."), Message(role="user", content="Say hello."))
COUNTS = {"prompt_eval_count": 31, "eval_count": 12}
LAST = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", **COUNTS}
PIECES = [{"message": {"role": "assistant", "content": text}, "done": False} for text in ("Hel", "lo")]
WHOLE = {"message": {"role": "assistant", "content": "Hello"}, "done": True, "done_reason": "stop", **COUNTS}


class Heard(SilentReporter):
    def __init__(self) -> None:
        self.pieces: list[str] = []

    def text(self, piece: str) -> None:
        self.pieces.append(piece)


def ollama(seen: Seen) -> Iterable[bytes]:
    """Streams where a stream is asked for."""
    if seen.json["stream"]:
        yield http_reply("\n".join(json.dumps(line) for line in [*PIECES, LAST]), content_type="application/x-ndjson")
    else:
        yield http_reply(json.dumps(WHOLE))


def client(
    backend: OllamaBackend | OpenAIBackend,
    reporter: SilentReporter,
    calls: int = 10,
    microusd: int = 200_000,
    secrets: tuple[str, ...] = (),
) -> LLMClient:
    limits = Limits(calls, microusd)
    state = AgentState(
        run_id="r",
        task="t",
        strategy="react",
        model=ModelInfo(name="m", backend=backend.name),
        sampling=Sampling(temperature=0, seed=7, num_ctx=4096, max_completion_tokens=200),
        limits=limits.record(),
        prices=PRICES.record(),
    )
    return LLMClient(
        backend,
        BudgetEnforcer(limits, PRICES),
        state,
        journal=NoJournal(),
        reporter=reporter,
        call_timeout_seconds=5,
        sleep=lambda _seconds: None,
        secrets=secrets,
    )


def test_streaming_changes_what_is_shown_and_nothing_that_is_charged() -> None:
    ledgers = []
    with serving(ollama) as wire:
        for stream in (False, True):
            heard = Heard()
            llm = client(OllamaBackend(wire.url, "m"), heard)
            reply = llm.chat(Ask(HELLO, "answer", stream=stream))
            assert reply.answer == "Hello"
            assert heard.pieces == (["Hel", "lo"] if stream else [])
            ledgers.append([entry.model_dump() for entry in llm._state.ledger])
    assert ledgers[0] == ledgers[1]
    assert ledgers[0][0]["settled_microusd"] == 31 * 10 + 12 * 30


def test_the_reserved_cap_is_the_cap_that_is_sent() -> None:
    with serving(ollama) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter(), microusd=8_000)
        llm.chat(Ask(HELLO, "answer"))
        cap = llm._state.ledger[0].max_completion_tokens
        assert 64 <= cap < 200
        assert wire.seen[0].json["options"]["num_predict"] == cap


def test_every_attempt_is_reserved_and_the_last_is_refused_before_it_is_sent() -> None:
    busy = '{"error":"server busy, please try again.  maximum pending requests exceeded"}'
    with serving(lambda _seen: [http_reply(busy, status=503)]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter(), calls=2)
        with pytest.raises(BudgetExceededError):
            llm.chat(Ask(HELLO, "answer"))
        assert len(wire.seen) == len(llm._state.ledger) == 2
    assert [entry.settled_as for entry in llm._state.ledger] == ["unknown", "unknown"]


def test_nothing_listening_costs_nothing_and_a_hang_up_costs_the_reservation() -> None:
    with serving(lambda _seen: []) as wire:
        url = wire.url
        llm = client(OllamaBackend(url, "m"), SilentReporter())
        with pytest.raises(BackendError):
            llm.chat(Ask(HELLO, "answer"))
        assert {entry.settled_as for entry in llm._state.ledger} == {"unknown"}
    llm = client(OllamaBackend(url, "m"), SilentReporter())
    with pytest.raises(NotSentError):
        llm.chat(Ask(HELLO, "answer"))
    assert [entry.settled_as for entry in llm._state.ledger] == ["refunded"]
    assert llm._state.cost_microusd == 0


def test_a_prompt_that_the_server_cut_is_an_error_and_never_an_answer() -> None:
    cut = {**WHOLE, "prompt_eval_count": 2051}
    long = (*HELLO, Message(role="user", content="word " * 7000))
    with serving(lambda _seen: [http_reply(json.dumps(cut))]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter())
        llm._enforcer = BudgetEnforcer(Limits(), PRICES)
        with pytest.raises(BackendError) as refused:
            llm.chat(Ask(long, "answer"))
    assert refused.value.error_type == "prompt_truncated"
    assert llm._state.calls[0].usage.prompt_tokens == 2051


def test_a_count_without_the_cached_tokens_is_not_believed() -> None:
    """Old servers count only what they had to read anew: the second, longer prompt seems to shrink."""
    counts = iter([500, 20])
    with serving(lambda _seen: [http_reply(json.dumps({**WHOLE, "prompt_eval_count": next(counts)}))]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter())
        head = (Message(role="system", content="word " * 400), HELLO[1])
        llm.chat(Ask(head, "answer"))
        more = (*head, Message(role="assistant", content="Hello"), Message(role="user", content="Again."))
        llm.chat(Ask(more, "answer"))
    first, second = llm._state.ledger
    assert (first.settled_as, second.settled_as) == ("counted", "unknown")
    assert second.settled_microusd == second.reserved_microusd


def test_a_server_that_stopped_a_model_for_repeating_itself_is_not_at_fault() -> None:
    stopped = {"message": {"role": "assistant", "content": "ha" * 50}, "done": False}
    with serving(lambda _seen: [http_reply(json.dumps(stopped))]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter())
        with pytest.raises(ModelError) as refused:
            llm.chat(Ask(HELLO, "answer"))
    assert refused.value.error_type == "repetition"
    assert llm._state.calls[0].error is not None
    assert llm._state.calls[0].error.fault == "model"


def test_the_same_over_v1() -> None:
    body = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 31, "completion_tokens": 12},
    }
    with serving(lambda _seen: [http_reply(json.dumps(body))]) as wire:
        llm = client(OpenAIBackend(wire.url, "m"), SilentReporter())
        assert llm.chat(Ask(HELLO, "answer")).answer == "Hello"
        assert wire.seen[0].json["max_tokens"] == 200
    assert llm._state.cost_microusd == 670


def test_a_body_that_no_reply_of_that_length_can_have_is_hung_up_on() -> None:
    line = json.dumps(PIECES[0]) + "\n"
    flood = (line * 100_000).encode()
    with serving(lambda _seen: [http_reply(flood, content_type="application/x-ndjson")]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter())
        with pytest.raises(BackendError) as refused:
            llm.chat(Ask(HELLO, "answer", stream=True))
    assert refused.value.error_type == "bad_reply"
    assert [entry.settled_as for entry in llm._state.ledger] == ["unknown"]


def test_a_long_reply_that_was_counted_short_is_bounded_by_its_bytes() -> None:
    """The next prompt holds the reply: a bound from a false count would let it pass the cap."""
    wordy = {**WHOLE, "message": {"role": "assistant", "content": "word " * 20_000}}
    with serving(lambda _seen: [http_reply(json.dumps(wordy))]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter())
        llm.chat(Ask(HELLO, "answer"))
        more = (*HELLO, Message(role="assistant", content="word " * 20_000), HELLO[1])
        with pytest.raises(BudgetExceededError):
            llm.chat(Ask(more, "answer"))
        assert len(wire.seen) == 1


def test_a_key_that_a_server_echoes_is_in_no_trace() -> None:
    def echo(seen: Seen) -> Iterable[bytes]:
        yield http_reply(json.dumps({"error": {"message": f"bad key: {seen.headers['authorization']}"}}), status=401)

    with serving(echo) as wire:
        llm = client(OpenAIBackend(wire.url, "m", api_key="sk-very-secret"), SilentReporter())
        with pytest.raises(BackendError) as refused:
            llm.chat(Ask(HELLO, "answer"))
    assert wire.seen[0].headers["authorization"] == "Bearer sk-very-secret"
    assert "very-secret" not in str(refused.value)
    assert "very-secret" not in llm._state.model_dump_json()
    assert "[redacted]" in llm._state.calls[0].raw


def test_a_secret_that_is_streamed_in_pieces_is_neither_read_nor_kept() -> None:
    texts = ("The key", " is sk-ve", "ry-sec", "ret", ". Bye")
    pieces = [{"message": {"role": "assistant", "content": text}, "done": False} for text in texts]
    lines = "".join(json.dumps(piece) + "\n" for piece in [*pieces, LAST])
    with serving(lambda _seen: [http_reply(lines, content_type="application/x-ndjson")]) as wire:
        llm = client(OllamaBackend(wire.url, "m"), SilentReporter(), secrets=("sk-very-secret",))
        assert llm.chat(Ask(HELLO, "answer", stream=True)).answer == "The key is [redacted]. Bye"
    (call,) = llm._state.calls
    kept = [json.loads(line)["message"]["content"] for line in call.raw.splitlines()]
    assert kept == ["The key", " is [redacted]", "", "", ". Bye", ""]
    assert call.usage.completion_tokens == 12
