"""The client's side of the storm: what each run is, and the real backend and gate, watched."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from agent.budget import BudgetEnforcer, Limits, Prices, Reservation
from agent.errors import BudgetExceededError
from agent.llm.backends.base import ChatRequest, OnText, RawReply
from agent.llm.backends.embeddings import ollama_embeddings
from agent.llm.backends.ollama import OllamaBackend
from agent.state import BoundKind, ModelInfo, Purpose, Sampling
from benchmarks.storm_tokens import Tokenizer, count, count_texts, render

IMPATIENT_SECONDS = 0.15
PATIENT_SECONDS = 30.0
Refused = BoundKind | Literal["texts"]  # how a call was bounded that was refused; texts to be embedded stand apart


@dataclass(frozen=True)
class RunPlan:
    """What one run is: who talks, how its server counts, its prices and caps."""

    number: int
    kind: str  # "react": a whole run of the loop; "chat": calls of the client, one after another
    tokenizer: Tokenizer
    habit: str  # "plain", or a key of the server's HABITS
    counted_ahead: bool
    prices: Prices
    limits: Limits
    sampling: Sampling
    timeout_seconds: float

    @property
    def model(self) -> str:
        """The model's name tells the server how to behave."""
        return f"run-{self.number}-{self.tokenizer}-{self.kind}-{self.habit}"


def plan_run(seed: int, number: int) -> RunPlan:
    """The same plan for the same seed and number."""
    rng = Random(f"plan/{seed}/{number}")
    tokenizer: Tokenizer = rng.choice(("bytes", "pieces"))
    habits = {"plain": 87, "impatient": 4, "cutting": 3, "uncached": 6 if tokenizer == "pieces" else 0}
    habit = rng.choices(list(habits), weights=list(habits.values()))[0]
    counted_ahead = number % 3 == 0 and habit != "uncached"
    cost = rng.choice((None, *[int(10 ** rng.uniform(4.0, 6.0))] * 11))
    seconds = rng.uniform(0.05, 0.4) if habit == "impatient" and rng.random() < 0.5 else None
    return RunPlan(
        number=number,
        kind=rng.choice(("react", "chat")),
        tokenizer=tokenizer,
        habit=habit,
        counted_ahead=counted_ahead,
        prices=replace(
            rng.choice((Prices(10_000, 30_000), Prices(rng.randint(0, 20_000), rng.randint(0, 60_000)))),
            embedding_microusd_per_1k=_embedding_price(Random(f"embedding/{seed}/{number}")),
        ),
        limits=Limits(rng.choice((None, 1, 2, 3, 5, 8, 10, 10)), cost, seconds),
        sampling=Sampling(
            temperature=0.0, seed=7, num_ctx=rng.choice((4096, 8192)), max_completion_tokens=rng.choice((16, 128, 512))
        ),
        timeout_seconds=IMPATIENT_SECONDS if habit == "impatient" else PATIENT_SECONDS,
    )


def _embedding_price(rng: Random) -> int:
    return rng.choice((0, 100, rng.randint(1, 10_000), rng.randint(10_000, 60_000)))


@dataclass(frozen=True)
class Doors:
    """Where requests may go: the server, a port that resets every connection, and one where nobody listens."""

    port: int
    reset_port: int
    closed_port: int

    @staticmethod
    def closed() -> socket.socket:
        """A port that is ours and refuses connections for as long as the socket is kept."""
        kept = socket.socket()
        kept.bind(("127.0.0.1", 0))
        return kept


@dataclass(frozen=True)
class Refusal:
    """A call that a money cap refused, and whether it would have been admitted by an exact count."""

    kind: Refused
    bound: int
    exact: int
    admitted_by_exact: bool


class StormBackend:
    """The real Ollama backend, whose requests are now and then sent to a port where nothing answers.

    The number of each call goes out in its model's name, so that the server's books name the call.
    """

    name = "ollama"

    def __init__(self, plan: RunPlan, doors: Doors, rng: Random) -> None:
        self._plan, self._rng = plan, rng
        self._ports = {"server": doors.port, "reset": doors.reset_port, "closed": doors.closed_port}
        self.can_constrain = rng.random() < 0.5
        self.doors: list[str] = []
        self.asked: ChatRequest | None = None

    def describe(self) -> ModelInfo:
        """Nothing is asked of the server."""
        return ModelInfo(name=self._plan.model, backend=self.name)

    def rendered_bytes(self, request: ChatRequest) -> int | None:  # noqa: ARG002  # the protocol's signature
        """None: no tools are sent in the storm."""
        return None

    def count_prompt_tokens(self, request: ChatRequest) -> int | None:
        """The server's count ahead, where this run's server offers one."""
        self.asked = request
        if not self._plan.counted_ahead:
            return None
        body = {"tokenizer": self._plan.tokenizer, **self._sent(request)}
        return int(ask_server(self._ports["server"], "/count", body)["tokens"])

    def exact_count(self) -> int:
        """The prompt tokens of the request that was asked about last, by the server's tokenizer."""
        assert self.asked is not None  # noqa: S101  the client counts before it reserves
        sent = self._sent(self.asked)
        return count(self._plan.tokenizer, render(sent["messages"], sent.get("tools")))

    def send(self, request: ChatRequest, on_text: OnText | None = None) -> RawReply:
        """One attempt through one of the doors."""
        return OllamaBackend(*self.next_door(self._rng)).send(request, on_text)

    def close(self) -> None:
        """Nothing is held."""

    def next_door(self, rng: Random) -> tuple[str, str]:
        """Where the run's next call goes, and the model's name with the number of that call."""
        door = rng.choices(("server", "reset", "closed"), weights=(96, 1, 3))[0]
        self.doors.append(door)
        return f"127.0.0.1:{self._ports[door]}", f"{self._plan.model}-{len(self.doors) - 1}"

    def _sent(self, request: ChatRequest) -> dict[str, Any]:
        body = OllamaBackend("127.0.0.1", self._plan.model).chat_body(request)
        wire = json.loads(json.dumps(body).encode().decode("utf-8", "replace"))
        return {key: wire[key] for key in ("messages", "tools") if key in wire}


class StormEmbedding:
    """The real way to vectors, through the same doors; its calls and the backend's are numbered together."""

    def __init__(self, plan: RunPlan, backend: StormBackend, rng: Random) -> None:
        self._plan, self._backend, self._rng = plan, backend, rng
        self.wanted: Sequence[str] = ()

    def describe(self) -> ModelInfo:
        """Nothing is asked of the server."""
        return self._backend.describe()

    def exact_count(self) -> int:
        """The tokens of the texts that are wanted now, by the server's tokenizer."""
        return count_texts(self._plan.tokenizer, self.wanted)

    def embed(self, texts: Sequence[str], deadline_seconds: float) -> RawReply:
        """One attempt through one of the doors."""
        return ollama_embeddings(*self._backend.next_door(self._rng)).embed(texts, deadline_seconds)

    def close(self) -> None:
        """Nothing is held."""


class WatchedEnforcer(BudgetEnforcer):
    """The run's gate, which notes for every refusal by money what an exact count would have come to."""

    def __init__(self, plan: RunPlan, parent: BudgetEnforcer, backend: StormBackend, embedding: StormEmbedding) -> None:
        super().__init__(plan.limits, plan.prices, parent=parent)
        self._backend, self._embedding = backend, embedding
        self.refusals: list[Refusal] = []
        self.refused_by_batch = False

    def reserve(
        self,
        prompt_tokens_bound: int,
        max_completion_tokens: int,
        *,
        purpose: Purpose = "answer",
        bound_kind: BoundKind = "exact",
        answer_tokens_bound: int | None = None,
    ) -> Reservation:
        """As the gate does."""
        try:
            return super().reserve(
                prompt_tokens_bound,
                max_completion_tokens,
                purpose=purpose,
                bound_kind=bound_kind,
                answer_tokens_bound=answer_tokens_bound,
            )
        except BudgetExceededError as error:
            self.refused_by_batch = self.refused_by_batch or error.scope == "batch"
            if error.cap == "cost":
                embeds = purpose == "embed"
                exact = self._embedding.exact_count() if embeds else self._backend.exact_count()
                kept = answer_tokens_bound if embeds else None
                admitted = self._would_admit(exact, max_completion_tokens, purpose, kept)
                kind: Refused = "texts" if embeds else bound_kind
                self.refusals.append(Refusal(kind, prompt_tokens_bound, exact, admitted))
            raise

    def _would_admit(self, exact: int, wanted: int, purpose: Purpose, kept: int | None) -> bool:
        """The gate's own arithmetic over what is left now; other runs may have moved the batch's by a call or two."""
        assert self.parent is not None  # noqa: S101  given in the constructor
        batch = BudgetEnforcer(Limits(self.parent.calls_left(), self.parent.microusd_left()), self.prices)
        run = BudgetEnforcer(Limits(self.calls_left(), self.microusd_left()), self.prices, parent=batch)
        try:
            run.reserve(exact, wanted, purpose=purpose, answer_tokens_bound=kept)
        except BudgetExceededError:
            return False
        return True


def ask_server(port: int, path: str, body: dict[str, Any] | None = None) -> Any:
    """A JSON answer of the storm server's own endpoints; of `/books` the list of its lines."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
        data = connection.getresponse().read()
    finally:
        connection.close()
    return [json.loads(line) for line in data.splitlines()] if path == "/books" else json.loads(data)
