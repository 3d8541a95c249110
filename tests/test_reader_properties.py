"""No input of any kind makes the reader raise what is not the model's fault, hang, or name what was not offered."""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ModelError
from agent.llm.arguments import read_arguments
from agent.llm.backends.base import Envelope
from agent.llm.replies import Reply, read_reply
from agent.llm.schemas import first_mismatch
from benchmarks.fuzz_reader import READERS, Seen, examine, fuzz, report, seeds
from benchmarks.fuzz_texts import MARKERS, mutated
from tests.support_replies import OSLO, TOOLS, WEATHER, tool

CLOCK = tool("clock", timezone={"anyOf": [{"type": "string"}, {"type": "null"}]})
OFFERED = (*TOOLS, CLOCK)
PARAMETERS = {offered["function"]["name"]: offered["function"]["parameters"] for offered in OFFERED}

ANYTHING = st.text() | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
PIECES = st.lists(st.sampled_from([*MARKERS.openings, *MARKERS.all, OSLO]) | ANYTHING, max_size=12).map("".join)
RECORDED = st.builds(
    lambda one, other, seed: mutated(random.Random(seed), seeds()[one].text, seeds()[other].text),
    st.integers(0, len(seeds()) - 1),
    st.integers(0, len(seeds()) - 1),
    st.integers(0, 10**9),
)
TEXTS = ANYTHING | PIECES | RECORDED
FINISHES = st.sampled_from(["stop", "length", "tool_calls", None])
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["city", "path"]) | TEXTS, inner),
    max_leaves=8,
)


def _is_sound(reply: Reply) -> None:
    for call in reply.calls:
        assert first_mismatch(call.arguments, PARAMETERS[call.name]) is None
        json.dumps(call.arguments, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert (reply.source == "none") == (not reply.outcomes)
    assert bool(reply.outcomes) != (reply.answer is not None)


def _is_short(error: ModelError) -> None:
    assert 0 < len(str(error)) < 2000


@given(content=TEXTS, thinking=TEXTS, finish=FINISHES)
def test_any_text_gives_a_sound_reply_or_the_models_fault(content: str, thinking: str, finish: str | None) -> None:
    try:
        reply = read_reply(Envelope(content=content, thinking=thinking, finish=finish), tools=OFFERED)
    except ModelError as error:
        _is_short(error)
        return
    _is_sound(reply)
    assert reply.source != "native"


@given(name=st.sampled_from(list(PARAMETERS)) | TEXTS, arguments=JSON_VALUES | TEXTS, content=TEXTS, finish=FINISHES)
def test_so_does_any_native_call(name: str, arguments: Any, content: str, finish: str | None) -> None:
    call = {"id": None, "index": None, "name": name, "arguments": arguments}
    try:
        reply = read_reply(Envelope(content=content, native_calls=[call, call], finish=finish), tools=OFFERED)
    except ModelError as error:
        _is_short(error)
        return
    _is_sound(reply)
    assert reply.source == "native"


@given(raw=TEXTS | JSON_VALUES.map(str), name=st.sampled_from(list(PARAMETERS)), told=st.booleans(), finish=FINISHES)
def test_arguments_meet_their_schema_or_the_model_is_told(raw: str, name: str, told: bool, finish: str | None) -> None:
    try:
        found = read_arguments(raw, PARAMETERS[name], tool=name if told else None, finish=finish)
    except ModelError as error:
        _is_short(error)
        return
    assert first_mismatch(found.arguments, PARAMETERS[name]) is None
    json.dumps(found.arguments, allow_nan=False, ensure_ascii=False).encode("utf-8")
    assert len(set(found.repairs)) == len(found.repairs)


@given(before=st.text(st.characters(exclude_characters="{}[]<>`'\"“”"), max_size=20), city=st.text(min_size=1))
def test_an_object_that_fits_is_found_behind_any_prose(before: str, city: str) -> None:
    written = json.dumps({"city": city})
    kept = json.loads(written.encode().decode("utf-8", "replace"))
    found = read_arguments(f"{before} {written}", WEATHER["function"]["parameters"])
    assert found.arguments == kept


@given(text=PIECES)
def test_arguments_never_come_out_of_thinking(text: str) -> None:
    quiet = text.replace("think>", "").replace("THINK]", "").replace("thinking>", "")
    with pytest.raises(ModelError):
        read_arguments(f"<think>{quiet} {json.dumps({'city': 'Oslo'})}", WEATHER["function"]["parameters"])


# -- time -------------------------------------------------------------------------------------------------------------

SMALL, LARGE = 20_000, 80_000
NOISE_SECONDS = 0.1  # below this, a ratio says nothing; linear reading of LARGE stays below it


def _seconds(read: Callable[[], object]) -> float:
    began = time.process_time()
    with contextlib.suppress(ModelError):
        read()
    return time.process_time() - began


def _least(read: Callable[[], object]) -> float:
    """The least of several tries: what else the machine does only adds to it."""
    return min(_seconds(read) for _ in range(4))


def _reads(text: str) -> tuple[Callable[[], object], ...]:
    envelope = Envelope(content=text, finish="stop")
    return (
        lambda: read_reply(envelope, tools=OFFERED),
        lambda: read_reply(envelope, schema={"type": "object"}),
        lambda: read_arguments(text, PARAMETERS["get_weather"], tool="get_weather"),
    )


@pytest.mark.parametrize(("place", "marker"), list(enumerate(MARKERS.all)))
def test_four_times_the_text_takes_about_four_times_as_long(place: int, marker: str) -> None:
    """Sixteen times as long is what quadratic reading would take. What follows the markers keeps them from closing."""
    for opening in ("", MARKERS.openings[place % len(MARKERS.openings)]):
        small, large = (_reads(opening + marker * (size // len(marker)) + "x") for size in (SMALL, LARGE))
        for few, many in zip(small, large, strict=True):
            assert _seconds(many) < NOISE_SECONDS or _least(many) < 8 * _least(few) + NOISE_SECONDS


# -- the fuzzer -------------------------------------------------------------------------------------------------------


def test_the_fuzzer_finds_nothing_in_its_first_inputs_and_makes_each_again() -> None:
    seen = fuzz(seed=7, first=0, inputs=300, jobs=1)
    assert (seen.inputs, seen.failures) == (300, [])
    assert 0 < seen.used < 300
    one = random.Random("7:11")
    again = random.Random("7:11")
    assert mutated(one, "a", "b") == mutated(again, "a", "b")


def test_the_fuzzer_says_what_breaks() -> None:
    def breaks(*_: object) -> bool:
        raise RecursionError("too deep")

    seen = Seen()
    examine(7, 0, seen, (*READERS, breaks))
    assert len(seen.failures) == 1
    text, kept = report(seen, 1.0, [(0.1, "{")])
    assert not kept
    assert "RecursionError" in text


def test_a_marker_that_takes_too_long_fails() -> None:
    seen = Seen(inputs=1, used=1)
    assert report(seen, 1.0, [(0.9, "{")])[1]
    assert not report(seen, 1.0, [(1.1, "{")])[1]
