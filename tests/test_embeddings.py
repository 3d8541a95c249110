"""Texts as vectors: through the gate like every call to a model, in the trace, and made again by a replay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent.budget import BudgetEnforcer, Limits
from agent.config import EMBEDDED_MODEL
from agent.errors import BackendError, OnlyAnswerLeftError, UsageError
from agent.llm.backends.base import EmbeddingBackend, RawReply
from agent.llm.backends.embeddings import ollama_embeddings, v1_embeddings
from agent.llm.backends.scripted import ScriptedReply
from agent.llm.bounds import HEAD_ALLOWANCE, MESSAGE_ALLOWANCE
from agent.llm.envelopes import usage_of
from agent.llm.vectors import read_vectors, with_blank_vectors, without_vectors
from agent.prompts.budget_line import parse_budget_line
from agent.state import AgentState, Usage
from agent.tools import query_pdf
from evals.replay import LiveTools, replay
from evals.verify import verify
from tests import support_pdf as pdf
from tests.support_cli import Desk
from tests.support_embeddings import KEY, MODEL, embedding_model, llama, ollama_body, tokens, v1_body, vectors
from tests.support_runs import PRICES, answer, new_run, run_script, turn
from tests.support_wire import Answer, Wire, http_reply, serving

WHALE = "The blue whale weighs up to 199 tonnes and is the largest animal known."
HARBOUR = "The harbour closes at nine in the evening, except on Sundays."
BAKERY = "The bakery sells rolls from six."


def ask_pdf(query: str, path: str = "notes.pdf") -> str:
    return turn(action={"tool": "query_pdf", "args": {"path": path, "query": query}})


@dataclass
class Library:
    """A workspace with a document of three pages, and a server of an embedding model."""

    folder: Path
    wire: Wire
    server: EmbeddingBackend

    def run(self, script: Sequence[ScriptedReply | str], **more: Any) -> AgentState:
        return run_script(
            script,
            task="Look into notes.pdf",
            tools_named="pdf",
            workspace=self.folder,
            embedding=self.server,
            **more,
        )

    def asked(self) -> list[list[str]]:
        """The texts of each request for vectors, in order."""
        return [seen.json["input"] for seen in self.wire.seen if seen.path in ("/api/embed", "/v1/embeddings")]


@contextmanager
def library(folder: Path, answers: Answer | None = None, pages: Sequence[str] = (HARBOUR, BAKERY, WHALE)) -> Any:
    (folder / "notes.pdf").write_bytes(pdf.of_texts(*pages))
    with serving(answers or embedding_model()) as wire:
        server = ollama_embeddings(wire.url, MODEL)
        try:
            yield Library(folder, wire, server)
        finally:
            server.close()


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Library]:
    with library(tmp_path) as ready:
        yield ready


# -- the wire -------------------------------------------------------------------------------------------------------


def reply(body: dict[str, Any] | str, endpoint: str = "/api/embed", status: int = 200) -> RawReply:
    text = body if isinstance(body, str) else json.dumps(body)
    return RawReply(endpoint, status, "application/json", text, streamed=False, seconds=0.1)


WRAPPINGS = [("/api/embed", ollama_body), ("/v1/embeddings", v1_body)]


@pytest.mark.parametrize(("endpoint", "body"), WRAPPINGS)
def test_both_wrappings_give_a_vector_a_text_in_the_order_of_the_texts(endpoint: str, body: Any) -> None:
    texts = [WHALE, HARBOUR, "nothing"]
    assert read_vectors(reply(body(texts), endpoint), 3) == vectors(texts)
    assert usage_of(reply(body(texts), endpoint)) == Usage(prompt_tokens=tokens(texts), completion_tokens=0)


@pytest.mark.parametrize(("endpoint", "body"), WRAPPINGS)
def test_what_a_trace_keeps_has_no_vectors_and_can_be_played_back(endpoint: str, body: Any) -> None:
    came = reply(body([WHALE, HARBOUR]), endpoint)
    kept = without_vectors(came)
    assert '{"lengths": [4, 4]}' in kept.body
    assert usage_of(kept) == usage_of(came)
    played = with_blank_vectors(kept)
    assert read_vectors(played, 2) == [[0.0] * 4] * 2
    assert without_vectors(played) == kept


NO_VECTORS = [
    {"embeddings": [[1.0, 2.0]]},
    {"embeddings": [[1.0, 2.0], [1.0]]},
    {"embeddings": [[], []]},
    {"embeddings": [[1.0, None], [1.0, 2.0]]},
    {"embeddings": [[True, False], [1.0, 2.0]]},
    {"embeddings": {"lengths": [2, 2]}},
    {"embeddings": {"lengths": [10**12, 10**12]}},
    {"embeddings": [[1.0, 2.0], [10**400, 1]]},
    {"embeddings": [[1.0]] * 3},
    {"embeddings": "none"},
    {"embeddings": None},
    {"data": [{"index": 0, "embedding": [1.0]}]},
    {},
    "[1, 2]",
    '{"embeddings": [[1e999], [1.0]]}',
]


@pytest.mark.parametrize("body", NO_VECTORS)
def test_what_is_no_vector_a_text_is_the_fault_of_the_server(body: dict[str, Any] | str) -> None:
    came = reply(body)
    for each in (came, with_blank_vectors(without_vectors(came))):
        with pytest.raises(BackendError) as caught:
            read_vectors(each, 2)
        assert caught.value.error_type == "bad_reply"
    assert without_vectors(with_blank_vectors(without_vectors(came))) == without_vectors(came)


def test_a_model_that_is_not_there_says_how_to_get_it() -> None:
    with serving(embedding_model()) as wire:
        with pytest.raises(BackendError, match="ollama pull other:latest"):
            ollama_embeddings(wire.url, "other").describe()
        with pytest.raises(BackendError, match="set EMBEDDING_MODEL to one of: nomic-embed-text"):
            v1_embeddings(wire.url, "other").describe()


def test_a_key_is_sent_to_its_server_and_a_wrong_address_names_its_own_setting() -> None:
    with serving(embedding_model(v1_body)) as wire:
        came = v1_embeddings(f"{wire.url}/v1", MODEL, api_key=KEY).embed([WHALE], 5.0)
    assert read_vectors(came, 1) == vectors([WHALE])
    assert wire.seen[-1].headers["authorization"] == f"Bearer {KEY}"
    with pytest.raises(UsageError, match="EMBEDDING_BASE_URL"):
        v1_embeddings("ftp://host", MODEL)


# -- in a run -------------------------------------------------------------------------------------------------------


def test_a_question_in_other_words_finds_its_page_and_is_one_call_of_the_run(shelf: Library) -> None:
    state = shelf.run([ask_pdf("which mammal is the biggest?"), answer("The blue whale.")])
    found = state.steps[0].results[0]
    assert found.data.startswith("notes.pdf: 3 pages; the parts that fit best by meaning:")
    assert found.data.index(WHALE) < found.data.index(HARBOUR)
    assert shelf.asked() == [["which mammal is the biggest?", HARBOUR, BAKERY, WHALE]]
    assert [entry.purpose for entry in state.ledger] == ["act", "embed", "act"]
    assert (state.calls_used, state.steps[0].calls) == (3, [0, 1])
    told = parse_budget_line(state.calls[2].appended[-1].content)
    assert told is not None
    assert told.calls_left == 8
    assert verify(state) == []


def test_it_is_reserved_by_its_bytes_and_charged_by_the_servers_count_at_its_own_price(shelf: Library) -> None:
    state = shelf.run([ask_pdf("mammal"), answer("The blue whale.")])
    entry, texts = state.ledger[1], shelf.asked()[0]
    bound = sum(len(text.encode()) + MESSAGE_ALLOWANCE for text in texts) + HEAD_ALLOWANCE
    assert (entry.prompt_tokens_bound, entry.max_completion_tokens, entry.bound_kind) == (bound, 0, "sent_bytes")
    assert entry.reserved_microusd == PRICES.for_purpose("embed").cost_microusd(bound, 0)
    assert entry.settled_microusd == PRICES.for_purpose("embed").cost_microusd(tokens(texts), 0)
    assert entry.settled_as == "counted"


def test_no_text_is_paid_for_twice(shelf: Library) -> None:
    state = shelf.run([ask_pdf("mammal"), ask_pdf("an old port"), ask_pdf("mammal weight"), answer("Found.")])
    assert shelf.asked() == [["mammal", HARBOUR, BAKERY, WHALE], ["an old port"], ["mammal weight"]]
    assert HARBOUR in state.steps[1].results[0].data.split("\n\n")[1]
    assert verify(state) == []


def test_the_last_call_is_kept_for_the_answer_and_the_tool_goes_on_by_words(shelf: Library) -> None:
    state = shelf.run([ask_pdf("blue whale"), answer("The blue whale.")], limits=Limits(2, 200_000))
    first = state.steps[0].results[0].data.partition("\n")[0]
    assert first.endswith("by keyword (no call was left to compare them by meaning):")
    assert (shelf.asked(), state.status, state.calls_used) == ([], "completed", 2)
    assert verify(state) == []


def test_the_money_of_the_answer_is_kept_too() -> None:
    needed = PRICES.for_purpose("embed").cost_microusd(20_000, 0) + PRICES.cost_microusd(1_000, 256)
    rich, poor = (BudgetEnforcer(Limits(10, cap), PRICES) for cap in (needed, needed - 1))
    entry = rich.reserve(20_000, 0, purpose="embed", answer_tokens_bound=1_000).entry
    assert (entry.reserved_microusd, entry.completion_microusd_per_1k) == (2_000, 0)
    with pytest.raises(OnlyAnswerLeftError, match="final answer"):
        poor.reserve(20_000, 0, purpose="embed", answer_tokens_bound=1_000)


def test_an_answer_has_all_that_the_conversation_held_kept_for_it(shelf: Library) -> None:
    act, embed, _ = shelf.run([ask_pdf("mammal"), answer("The blue whale.")]).ledger
    assert embed.answer_tokens_bound == act.prompt_tokens_bound + act.max_completion_tokens


def test_a_batchs_purse_that_is_empty_leaves_the_run_its_words(shelf: Library) -> None:
    purse = BudgetEnforcer(Limits(max_calls=2), PRICES, scope="batch")
    state = shelf.run([ask_pdf("blue whale"), answer("The blue whale.")], parent=purse)
    assert "no call was left" not in state.steps[0].results[0].data  # the second call of the batch is this one
    assert (state.status, state.ended_by) == ("budget_exhausted", "batch")
    assert verify(state) == []


BUSY = http_reply('{"error": "server busy, please try again. maximum pending requests exceeded"}', status=503)


def test_a_busy_server_is_asked_again_and_each_try_is_a_call(tmp_path: Path) -> None:
    with library(tmp_path, embedding_model(replies=[BUSY])) as shelf:
        state = shelf.run([ask_pdf("mammal"), answer("The blue whale.")])
    assert [(call.phase, call.attempt) for call in state.calls] == [
        *(("turn", 0), ("embed", 0), ("embed", 1)),
        ("turn", 0),
    ]
    assert state.ledger[1].settled_as == "unknown"
    assert state.ledger[1].settled_microusd == state.ledger[1].reserved_microusd
    assert verify(state) == []


BROKEN = [
    (http_reply('{"error": "model not found"}', status=404), "model_not_found"),
    (http_reply('{"embeddings": [[1.0]]}'), "bad_reply"),
    (http_reply("<html>", status=502, content_type="text/html"), "proxy_error"),
    (b"", "server_error"),
    (http_reply('{"error": "error parsing tool call: unexpected end"}', status=500), "server_error"),
    (http_reply('{"error": "token repeat limit reached"}'), "server_error"),
]


@pytest.mark.parametrize(("came", "error_type"), BROKEN)
def test_a_server_that_fails_makes_the_run_invalid_and_what_was_sent_is_paid(
    tmp_path: Path, came: bytes, error_type: str
) -> None:
    with library(tmp_path, embedding_model(replies=[came] * 4)) as shelf:
        state = shelf.run([ask_pdf("mammal"), answer("The blue whale.")])
    assert state.error is not None
    assert (state.status, state.error.error_type, state.error.fault) == ("error", error_type, "server")
    assert (len(state.steps[0].actions), state.steps[0].results) == (1, [])
    assert all(entry.settled_microusd == entry.reserved_microusd for entry in state.ledger[1:])
    assert verify(state) == []


@pytest.mark.parametrize(
    "body",
    [
        {"embeddings": {"lengths": [4, 4, 4, 4]}, "prompt_eval_count": 9},
        {"embeddings": [[10**400, 1]] * 4, "prompt_eval_count": 9},
        {"embeddings": [[0.5] * 1000] * 5, "prompt_eval_count": 9},
    ],
)
def test_an_odd_reply_is_the_servers_fault_in_the_trace_as_well(tmp_path: Path, body: dict[str, Any]) -> None:
    with library(tmp_path, embedding_model(replies=[http_reply(json.dumps(body))])) as shelf:
        state = shelf.run([ask_pdf("mammal"), answer("The blue whale.")])
    assert state.error is not None
    assert state.error.error_type == "bad_reply"
    assert len(state.calls[1].raw) < 300
    assert verify(state) == []


def test_vectors_of_another_length_than_before_are_the_servers_fault(tmp_path: Path) -> None:
    lengths = iter((4, 3))

    def swapped(texts: Sequence[str]) -> dict[str, Any]:
        return {"embeddings": [[0.5] * length for length in [next(lengths)] for _ in texts], "prompt_eval_count": 30}

    with library(tmp_path, embedding_model(swapped)) as shelf:
        state = shelf.run([ask_pdf("mammal"), ask_pdf("old port"), answer("The blue whale.")])
    assert state.error is not None
    assert (state.error.error_type, len(state.calls)) == ("bad_reply", 4)
    assert verify(state) == []


def test_time_that_ends_within_the_call_is_the_runs(tmp_path: Path) -> None:
    def late(texts: Sequence[str]) -> dict[str, Any]:
        time.sleep(1.5)
        return ollama_body(texts)

    with library(tmp_path, embedding_model(late)) as shelf:
        state = shelf.run([ask_pdf("blue whale"), answer("It.")], limits=Limits(10, 200_000, 0.7))
    assert (state.status, state.calls[1].error is not None) == ("timeout", True)
    assert "no call was left" in state.steps[0].results[0].data
    assert verify(state) == []


def test_a_server_that_is_gone_takes_its_reservation_back(tmp_path: Path) -> None:
    with library(tmp_path) as shelf:
        run = new_run([ask_pdf("mammal")], tools_named="pdf", workspace=tmp_path, embedding=shelf.server)
    from agent.loop import run_task  # noqa: PLC0415  the server has ended by now

    state = run_task(run)
    assert (state.status, state.ledger[1].settled_as, state.calls_used) == ("error", "refunded", 1)
    assert verify(state) == []


def test_a_count_above_the_bound_ends_the_run(tmp_path: Path) -> None:
    def over(texts: Sequence[str]) -> dict[str, Any]:
        return {**ollama_body(texts), "prompt_eval_count": 50_000}

    with library(tmp_path, embedding_model(over)) as shelf:
        state = shelf.run([ask_pdf("blue whale"), answer("The blue whale.")])
    assert state.ledger[1].settled_as == "overshoot"
    assert (state.status, len(state.calls)) == ("budget_exhausted", 2)
    assert verify(state) == []


def test_a_server_that_does_not_count_is_charged_by_the_bound(tmp_path: Path) -> None:
    def silent(texts: Sequence[str]) -> dict[str, Any]:
        return {"embeddings": vectors(texts)}

    with library(tmp_path, embedding_model(silent)) as shelf:
        state = shelf.run([ask_pdf("mammal"), answer("The blue whale.")])
    assert (state.ledger[1].settled_as, state.status) == ("unknown", "completed")
    assert state.ledger[1].settled_microusd == state.ledger[1].reserved_microusd
    assert verify(state) == []


def test_a_secret_in_a_document_reaches_neither_the_server_nor_the_trace(tmp_path: Path) -> None:
    secret = "hunter2-hunter2"
    with library(tmp_path, pages=[f"The password of the port is {secret}."]) as shelf:
        state = shelf.run([ask_pdf("port"), answer("It is hidden.")], secrets=(secret,))
    assert secret not in json.dumps(shelf.asked())
    assert secret not in state.model_copy(update={"workspace": None}).model_dump_json()
    assert verify(state) == []


def test_of_a_long_document_the_likely_parts_and_its_beginning_are_compared(tmp_path: Path) -> None:
    pages = [f"Page {number} of a long and dull report. " * 11 for number in range(150)]
    pages[140] = "Here a zebra crosses the road, and a whale does not."
    with library(tmp_path, pages=pages) as shelf:
        shelf.run([ask_pdf("zebra"), answer("On page 141.")])
    (texts,) = shelf.asked()
    assert len(texts) == 1 + query_pdf.MAX_EMBEDDED
    assert texts[1] == pages[140]
    assert texts[2].startswith("Page 0 of")


# -- afterwards -----------------------------------------------------------------------------------------------------


@pytest.fixture
def trace(shelf: Library) -> AgentState:
    return shelf.run([ask_pdf("mammal"), ask_pdf("old port"), answer("The blue whale.")])


def test_it_replays_without_the_server(trace: AgentState) -> None:
    assert replay(trace).difference is None


def test_live_tools_cannot_compare_by_meaning_again_and_say_so(trace: AgentState) -> None:
    with pytest.raises(UsageError, match="leave out --live-tools"):
        replay(trace, live=LiveTools())


def _dropped(state: AgentState) -> None:
    del state.calls[1], state.ledger[1]
    for place, (call, entry) in enumerate(zip(state.calls, state.ledger, strict=True)):
        call.index = entry.index = place
    state.steps[0].calls, state.steps[1].calls, state.steps[2].calls = [0], [1, 2], [3]
    state.calls[1].after = state.calls[3].after = 0
    state.calls[3].after = 1


def _free(state: AgentState) -> None:
    state.ledger[1].prompt_microusd_per_1k = state.ledger[1].reserved_microusd = state.ledger[1].settled_microusd = 0


def _fewer_tokens(state: AgentState) -> None:
    state.calls[1].usage.prompt_tokens = 1
    state.ledger[1].settled_microusd = 1


def _shorter_texts(state: AgentState) -> None:
    state.calls[1].appended.pop()


def _a_chat(state: AgentState) -> None:
    state.ledger[1].purpose = "act"


def _no_model(state: AgentState) -> None:
    state.embedder = None


def _longer_vectors(state: AgentState) -> None:
    state.calls[1].raw = state.calls[1].raw.replace("[4, 4, 4, 4]", "[5, 5, 5, 5]")


def _longer_call(state: AgentState) -> None:
    state.calls[1].timing.total = 60.0


def _less_kept(state: AgentState) -> None:
    state.ledger[1].answer_tokens_bound = 0


TAMPERED = [
    _dropped,
    _free,
    _fewer_tokens,
    _shorter_texts,
    _a_chat,
    _no_model,
    _longer_vectors,
    _less_kept,
    _longer_call,
]


@pytest.mark.parametrize("change", TAMPERED)
def test_a_changed_trace_is_found_out(trace: AgentState, change: Any) -> None:
    state = AgentState.model_validate_json(trace.model_dump_json())
    assert verify(state) == []
    change(state)
    assert verify(state) != []


# -- from the command line ------------------------------------------------------------------------------------------

REPLIES = {"*": [ask_pdf("mammal"), answer("The blue whale.")]}


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "notes.pdf").write_bytes(pdf.of_texts(HARBOUR, BAKERY, WHALE))
    return Desk(tmp_path)


TASK = ("Look into notes.pdf", "--toolset", "pdf", "--workspace", "papers", "--strategy", "react")


def test_a_real_model_compares_and_its_run_verifies(desk: Desk) -> None:
    with llama() as url:
        done = desk.scripted(*TASK, replies=REPLIES, EMBEDDING_MODEL=str(EMBEDDED_MODEL), EMBEDDING_BASE_URL=url)
    assert done.code == 0, done
    (path,) = (desk.folder / "traces").glob("*.json")
    state = AgentState.model_validate_json(path.read_text("utf-8"))
    assert "by meaning" in state.steps[0].results[0].data
    assert state.ledger[1].settled_as == "counted"
    assert json.loads(state.calls[1].raw)["data"] == {"lengths": [576] * 4}
    assert desk.main("verify", "traces").code == 0


def test_a_backend_without_vectors_says_what_to_set_but_only_to_those_who_would_need_it(desk: Desk) -> None:
    done = desk.scripted(*TASK, replies=REPLIES, EMBEDDING_MODEL="nomic-embed-text")
    assert (done.code, "EMBEDDING_BASE_URL" in done.err) == (2, True)
    other = ("What is 6 times 7?", "--toolset", "core")
    assert desk.scripted(*other, replies={"*": [answer("42")]}, EMBEDDING_MODEL="x").code != 2


def test_a_model_that_the_server_lacks_is_the_persons_to_mend(desk: Desk) -> None:
    with serving(embedding_model()) as wire:
        done = desk.scripted(*TASK, replies=REPLIES, EMBEDDING_MODEL="other", EMBEDDING_BASE_URL=wire.url)
    assert done.code == 2
    assert "EMBEDDING_MODEL" in done.err
