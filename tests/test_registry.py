"""The registry: four forms of one declaration that cannot drift, and calls that end in time with a typed result."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, create_model

from agent.errors import UsageError
from agent.state import ToolCall
from agent.tools.base import Excerpt, Params, Tool, ToolContext, ToolError
from agent.tools.json_schema import (
    DECODE_PATTERN,
    GRAMMAR_MAX_TEXT,
    NATIVE_MAX_TEXT,
    action_form,
    parameter_words,
    plain_schema,
)
from agent.tools.registry import TOOLSETS, ToolRegistry, register_tool, toolset

ShortText = Annotated[str, Field(max_length=12)]


class Place(Params):
    """A nested object."""

    city: ShortText = Field(description="its name")
    number: int | None = Field(None, description="its number")


class EverythingParams(Params):
    """One parameter of each kind that a tool may declare."""

    text: str = Field(min_length=1, max_length=5000, description="some text")
    count: int = Field(ge=1, le=50, description="how many")
    ratio: float = Field(0.5, description="a share")
    exact: bool = Field(False, description="whether to be exact")
    mode: Literal["fast", "slow"] = Field("fast", description="how")
    tags: list[ShortText] = Field(default_factory=list, max_length=3, description="labels")
    place: Place | None = Field(None, description="where")


class Everything(Tool[EverythingParams]):
    name = "everything"
    description = "Takes everything."
    effect = "read"
    params = EverythingParams

    def run(self, params: EverythingParams, context: ToolContext) -> str:
        return repr(params)


class EmptyParams(Params):
    """Nothing."""


class Nothing(Tool[EmptyParams]):
    name = "nothing"
    description = "Takes nothing."
    effect = "read"
    params = EmptyParams

    def run(self, params: EmptyParams, context: ToolContext) -> str:
        return "done"


class Failing(Nothing):
    name = "failing"

    def __init__(self, error: BaseException):
        self.error = error

    def run(self, params: EmptyParams, context: ToolContext) -> str:
        raise self.error


class Hanging(Nothing):
    name = "hanging"
    timeout_seconds = 0.05

    def __init__(self) -> None:
        self.release = threading.Event()

    def run(self, params: EmptyParams, context: ToolContext) -> str:
        self.release.wait(30)
        return "late"


class Talkative(Nothing):
    name = "talkative"
    max_chars = 100

    def run(self, params: EmptyParams, context: ToolContext) -> str:
        return "x" * 5000


class Endless(Tool[EmptyParams]):
    name = "endless"
    description = "Never ends."
    effect = "read"
    max_chars = 100
    params = EmptyParams

    def run(self, params: EmptyParams, context: ToolContext) -> Excerpt:
        return Excerpt("s3cret" + "y" * 200, "5 gigabytes")


class SearchParams(Params):
    """What a search takes."""

    words: str = Field(max_length=50, description="what to look for")
    most: int = Field(5, description="how many")


class Searching(Tool[SearchParams]):
    name = "searching"
    description = "Looks for words. It is quick."
    effect = "network"
    free_text = "words"
    keywords = ("look for",)
    params = SearchParams

    def run(self, params: SearchParams, context: ToolContext) -> str:
        return params.words


def all_tools() -> list[Tool[Any]]:
    known = [tool_class() for classes in TOOLSETS.values() for tool_class in classes]
    return [*known, Everything(), Nothing()]


def registry(*tools: Tool[Any]) -> ToolRegistry:
    return ToolRegistry(tools, ToolContext())


def call(name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def nodes(schema: Any) -> Iterator[dict[str, Any]]:
    """Every schema within a schema."""
    if isinstance(schema, list):
        for item in schema:
            yield from nodes(item)
    elif isinstance(schema, dict):
        yield schema
        for key, value in schema.items():
            yield from nodes(list(value.values()) if key == "properties" else value if key != "const" else None)


def values(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Any value that a schema allows, as constrained decoding would write it."""
    if "anyOf" in schema:
        return st.one_of([values(branch) for branch in schema["anyOf"]])
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        return st.from_regex(schema["pattern"], fullmatch=True)
    kind = schema["type"]
    if kind == "object":
        required, fields = schema.get("required", []), schema["properties"]
        return st.fixed_dictionaries(
            {name: values(fields[name]) for name in required},
            optional={name: values(node) for name, node in fields.items() if name not in required},
        )
    if kind == "array":
        return st.lists(values(schema["items"]), min_size=schema.get("minItems", 0), max_size=schema["maxItems"])
    return {
        "string": st.text(min_size=schema.get("minLength", 0), max_size=min(schema.get("maxLength", 20), 20)),
        "integer": st.integers(schema.get("minimum", -(10**12)), schema.get("maximum", 10**12)),
        "number": st.floats(-1e300, 1e300) | st.integers(-(10**12), 10**12),
        "boolean": st.booleans(),
        "null": st.none(),
    }[kind]


FIELD_TYPES: list[tuple[Any, dict[str, Any]]] = [
    (str, {"max_length": 20}),
    (str, {"min_length": 1, "max_length": 9000}),
    (int, {"ge": 0, "le": 9}),
    (int, {}),
    (float, {}),
    (bool, {}),
    (Literal["on", "off"], {}),
    (list[int], {"max_length": 4}),
    (list[ShortText], {"min_length": 1, "max_length": 2}),
    (int | None, {}),
    (Place, {}),
]


@st.composite
def declarations(draw: st.DrawFn) -> Tool[Any]:
    """A tool whose parameters were made up."""
    names = draw(st.lists(st.from_regex(r"[a-z][a-z_]{0,8}[a-z]", fullmatch=True), max_size=5, unique=True))
    names = [name for name in names if not hasattr(Params, name)]
    fields: dict[str, Any] = {}
    for name in names:
        kind, bounds = draw(st.sampled_from(FIELD_TYPES))
        default = ... if draw(st.booleans()) else None
        fields[name] = (kind if default is ... else kind | None, Field(default, description=f"the {name}", **bounds))
    made: type[Params] = create_model("Made", __base__=Params, **fields)

    class MadeUp(Tool[Any]):
        name = "made_up"
        description = "Made up."
        effect = "read"
        params = made

        def run(self, params: Any, context: ToolContext) -> str:
            return "done"

    return MadeUp()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(-1e9, 1e9) | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_all_four_forms_name_the_same_parameters(tool: Tool[Any]) -> None:
    tools = registry(tool)
    fields = tool.params.model_fields
    required = [name for name, field in fields.items() if field.is_required()]

    native = tools.native_tools()[0]["function"]
    assert (native["name"], native["description"]) == (tool.name, tool.description)
    assert list(native["parameters"]["properties"]) == list(fields)
    assert native["parameters"].get("required", []) == required

    action = tools.action_schema()["anyOf"][0]["properties"]
    assert action["tool"]["enum"] == [tool.name]
    assert list(action["args"].get("properties", {})) == list(fields)
    assert action["args"].get("required", []) == required

    for words, node in zip(
        parameter_words(plain_schema(tool.params)), native["parameters"]["properties"].values(), strict=True
    ):
        assert f"{words}: {node['description']}" in tools.prose()
    said = re.findall(r"^ +(\w+) \(.*(required|optional)\)", tools.prose(), re.MULTILINE)
    assert said == [(name, "required" if name in required else "optional") for name in fields]


@given(st.data())
def test_whatever_the_bounded_schema_allows_validates_unrepaired(data: st.DataObject) -> None:
    tool = data.draw(declarations() | st.sampled_from(all_tools()))
    tools = registry(tool)
    for action in data.draw(values(tools.actions_schema())):
        checked = tools.validate(ToolCall(name=action["tool"], arguments=action["args"]))
        assert checked.repairs == ()
        assert checked.call.arguments == action["args"]


@given(st.data())
def test_validation_and_native_schema_agree(data: st.DataObject) -> None:
    tool = data.draw(declarations() | st.sampled_from(all_tools()))
    tools = registry(tool)
    fields = plain_schema(tool.params)["properties"]
    guesses = {name: values(node) | JSON for name, node in fields.items()}
    arguments = data.draw(st.fixed_dictionaries({}, optional=guesses))
    arguments |= data.draw(st.dictionaries(st.sampled_from(["extra", *fields]), JSON, max_size=1))
    native = jsonschema.Draft202012Validator(tools.native_tools()[0]["function"]["parameters"])
    try:
        checked = tools.validate(ToolCall(name=tool.name, arguments=arguments))
    except ToolError as error:
        assert error.error_type == "bad_args"  # noqa: PT017 either outcome is right, depending on what was drawn
        too_long = re.search(r"at most \d+ characters", str(error))
        assert too_long or not native.is_valid(arguments)
    else:
        assert native.is_valid(arguments) or checked.repairs
        assert native.is_valid(checked.call.arguments)


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_schemas_suit_a_grammar_compiler(tool: Tool[Any]) -> None:
    tools = registry(tool)
    for node in nodes(tools.actions_schema()):
        assert not {"$ref", "$defs", DECODE_PATTERN, "format", "title", "default", "description"} & set(node)
        if "pattern" in node:  # unanchored or unbounded it would not end a text
            assert re.fullmatch(r"\^[^*+?]*\$", re.sub(r"\\.|\[[^]]*\]|\)\?| \?", "", node["pattern"]))
        elif node.get("type") == "string" and "enum" not in node:
            assert node["maxLength"] <= GRAMMAR_MAX_TEXT
        if node.get("type") == "array":
            assert "maxItems" in node
        assert node.get("properties") != {}
    for node in nodes(tools.native_tools()[0]["function"]["parameters"]):
        assert not {"$ref", "$defs", DECODE_PATTERN, "title", "default"} & set(node)
        assert node.get("maxLength", 0) <= NATIVE_MAX_TEXT


@pytest.mark.parametrize("name", sorted(TOOLSETS))
def test_descriptions_hold_no_example_to_copy(name: str) -> None:
    prose = registry(*toolset(name)).prose()
    assert not re.search(r"\d|[\"'`]|\b(e\.g|i\.e|such as|for example|for instance|like)\b", prose, re.IGNORECASE)


@pytest.mark.parametrize(
    ("given_value", "typed_value"),
    [
        ({"count": "45"}, {"count": 45}),
        ({"count": 45.0}, {"count": 45}),
        ({"ratio": "2.5"}, {"ratio": 2.5}),
        ({"exact": "True"}, {"exact": True}),
        ({"text": 1}, {"text": "1"}),
        ({"place": "null"}, {"place": None}),
        ({"place": {"city": 7, "number": "12"}}, {"place": {"city": "7", "number": 12}}),
        ({"tags": ["a", 2]}, {"tags": ["a", "2"]}),
    ],
)
def test_values_are_typed_by_the_schema_and_that_is_recorded(
    given_value: dict[str, Any], typed_value: dict[str, Any]
) -> None:
    base = {"text": "some", "count": 3}
    checked = registry(Everything()).validate(call("everything", **base | given_value))
    assert checked.call.arguments == base | typed_value
    assert checked.repairs == (f"coerced:{next(iter(given_value))}",)


def test_what_already_fits_stays_as_it_is() -> None:
    arguments = {"text": "1", "count": 45, "ratio": 1, "tags": ["2"], "place": {"city": "3", "number": None}}
    checked = registry(Everything()).validate(call("everything", **arguments))
    assert checked.call.arguments == arguments
    assert checked.repairs == ()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "argument text is missing"),
        ({"text": "a", "count": "many"}, "argument 'count': input should be a valid integer"),
        ({"text": "a", "count": True}, "argument 'count'"),
        ({"text": "a", "count": "4.5"}, "argument 'count'"),
        ({"text": "a", "count": 51}, "less than or equal to 50"),
        ({"text": "", "count": 3}, "at least 1 character"),
        ({"text": "\ud800", "count": 3}, "argument 'text'"),
        ({"text": {"type": "string"}, "count": 3}, "argument 'text'"),
        ({"text": "a", "count": 3, "colour": 1}, "there is no argument 'colour'"),
        ({"text": "a", "count": 3, "mode": "medium"}, "'fast' or 'slow'"),
    ],
)
def test_bad_arguments_are_told_with_what_the_tool_takes(arguments: dict[str, Any], told: str) -> None:
    result = registry(Everything()).execute(ToolCall(name="everything", arguments=arguments))
    assert (result.success, result.error_type) == (False, "bad_args")
    assert told in (result.error or "")
    assert "count (integer, required)" in (result.error or "")


def test_hostile_names_are_shown_short_and_printable() -> None:
    tools = registry(Everything())
    hostile = "\x1b[2J\u202e\ud800" + "x" * 100_000
    for result in (
        tools.execute(ToolCall(name=hostile, arguments={})),
        tools.execute(ToolCall(name="everything", arguments={hostile: hostile})),
    ):
        assert result.error is not None
        assert len(result.error) < 500
        assert result.error.isprintable()


def test_names_are_exact_and_a_near_one_is_suggested() -> None:
    result = registry(Everything(), Nothing()).execute(call("Everythin"))
    assert (result.success, result.error_type) == (False, "unknown_tool")
    assert "Did you mean everything?" in (result.error or "")
    assert "everything, nothing" in (result.error or "")


def test_a_tools_own_refusal_is_an_observation() -> None:
    result = registry(Failing(ToolError("not_found", "Look elsewhere."))).execute(call("failing"))
    assert (result.success, result.error_type, result.error, result.data) == (False, "not_found", "Look elsewhere.", "")


@pytest.mark.parametrize("error", [RuntimeError("ours"), UsageError("the person's"), SystemExit(3)])
def test_any_other_error_reaches_the_caller_from_the_worker_thread(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        registry(Failing(error)).execute(call("failing"))
    assert caught.value is error


def test_a_tool_that_hangs_is_left_behind() -> None:
    tool = Hanging()
    result = registry(tool).execute(call("hanging"))
    left = [thread for thread in threading.enumerate() if thread.name == "tool-hanging"]
    tool.release.set()
    assert (result.success, result.error_type) == (False, "timeout")
    assert 0.05 <= result.seconds < 10
    assert [thread.daemon for thread in left] == [True]
    left[0].join(10)


def test_long_results_are_cut_with_a_marker_inside_the_limit() -> None:
    result = registry(Talkative()).execute(call("talkative"))
    assert result.success
    assert result.truncated
    assert len(result.data) == Talkative.max_chars
    assert "5,000 characters in all" in result.data
    error = registry(Failing(ToolError("refused", "y" * 5000))).execute(call("failing"))
    assert error.truncated
    assert len(error.error or "") == Failing.max_chars


def test_the_beginning_of_an_endless_result_says_so_and_holds_no_secret() -> None:
    result = ToolRegistry([Endless()], ToolContext(secrets=("s3cret",))).execute(call("endless"))
    assert (result.success, result.truncated) == (True, True)
    assert len(result.data) == Endless.max_chars
    assert result.data.endswith("[cut here: 5 gigabytes in all]")
    assert "s3cret" not in result.data


@pytest.mark.parametrize("tool", all_tools(), ids=lambda tool: tool.name)
def test_one_tool_alone_is_shown_as_it_is_among_others(tool: Tool[Any]) -> None:
    tools = registry(tool, Searching())
    assert tools.native_tool(tool.name) == tools.native_tools()[0]
    assert tools.prose() == f"{tools.prose_of(tool.name)}\n{tools.prose_of('searching')}"
    assert tools.parameters(tool.name) == plain_schema(tool.params)
    assert tools.arguments_schema(tool.name) == tools.action_schema()["anyOf"][0]["properties"]["args"]
    assert tools.effect(tool.name) == tool.effect


def test_what_is_known_of_a_tool_that_is_not_offered_is_none() -> None:
    tools = registry(Nothing())
    assert (tools.parameters("searching"), tools.effect("searching"), tools.keywords("searching")) == (None, None, ())
    assert registry(Searching()).keywords("searching") == ("look for",)


def test_headlines_say_each_tool_in_a_sentence() -> None:
    assert registry(Searching(), Nothing()).headlines() == "searching: Looks for words.\nnothing: Takes nothing."


@pytest.mark.parametrize(
    ("made", "query"),
    [
        (call("searching", words="red kites", most=3), "red kites"),
        (call("searching", most=3), None),
        (call("searching", words=["red", "kites"]), None),
        (call("nothing", words="red kites"), None),
        (call("unknown", words="red kites"), None),
    ],
)
def test_the_query_of_a_call_is_its_free_text(made: ToolCall, query: str | None) -> None:
    assert registry(Searching(), Nothing()).query_of(made) == query


def test_free_text_that_names_no_parameter_is_a_bug() -> None:
    class Misnamed(Searching):
        free_text = "query"

    with pytest.raises(TypeError, match="free_text"):
        registry(Misnamed())


def test_further_actions_stand_beside_the_tools_in_a_grammar() -> None:
    finish = action_form("finish", plain_schema(SearchParams))
    schema = registry(Nothing()).actions_schema(2, [finish])
    assert (schema["minItems"], schema["maxItems"]) == (1, 2)
    accepts = jsonschema.Draft202012Validator(schema).is_valid
    assert accepts([{"tool": "nothing", "args": {}}, {"tool": "finish", "args": {"words": "done"}}])
    assert not accepts([{"tool": "finish", "args": {}}])
    assert not jsonschema.Draft202012Validator(registry(Nothing()).actions_schema()).is_valid(
        [{"tool": "finish", "args": {"words": "done"}}]
    )


def test_the_hash_tells_whether_the_same_tools_were_offered() -> None:
    assert registry(Everything(), Nothing()).hash() == registry(Everything(), Nothing()).hash()
    assert registry(Everything(), Nothing()).hash() != registry(Everything()).hash()


def test_schemas_are_derived_once_a_class() -> None:
    assert registry(Everything()).native_tools()[0] is registry(Everything()).native_tools()[0]


def test_toolsets_compose_and_unknown_ones_are_told() -> None:
    core = ["web_search", "calculate_math", "execute_code", "clock"]
    assert [tool.name for tool in toolset("core, core")] == core
    assert [tool.name for tool in toolset("core,fs")] == [*core, *(tool.name for tool in TOOLSETS["fs"])]
    with pytest.raises(UsageError, match="no toolset 'cor': use one of core, fs"):
        toolset("core,cor")


@pytest.fixture
def own_toolsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test registers is forgotten after it."""
    monkeypatch.setattr("agent.tools.registry.TOOLSETS", dict(TOOLSETS))


@pytest.mark.usefixtures("own_toolsets")
def test_a_tool_of_ones_own_joins_a_toolset_or_makes_one() -> None:
    for name in ("core", "mine", "mine"):
        register_tool(Searching, name)
    assert [tool.name for tool in toolset("mine")] == ["searching"]
    assert [tool.name for tool in toolset("core,mine")][-2:] == ["clock", "searching"]
    assert registry(*toolset("mine")).execute(call("searching", words="kites")).data == "kites"


class Unbounded(Params):
    text: str = Field(description="endless")


class Loop(Params):
    inner: Loop | None = Field(None, description="itself")


class Nameless(Tool[EmptyParams]):
    description = "Has no name."
    effect = "read"
    params = EmptyParams


def changed(**words: Any) -> Any:
    """A class like Nothing, with some of its words changed."""
    return type("Changed", (Nothing,), words)


@pytest.mark.usefixtures("own_toolsets")
@pytest.mark.parametrize(
    ("tool_class", "told"),
    [
        (Failing, "Failing: .*missing 1 required positional argument"),
        (Nameless, "Nameless: the class does not say its name"),
        (changed(params=Unbounded), "Changed: Unbounded.*: a text needs max_length"),
        (changed(params=Loop), "Changed: maximum recursion depth"),
        (changed(params=dict), "params must be a class made from"),
        (changed(name="calculate_math"), "there is a tool calculate_math already"),
        (changed(name="two words"), "a tool cannot be called 'two words'"),
        (changed(name="finish"), "a tool cannot be called 'finish'"),
        (changed(name="write"), "a tool cannot be called 'write'"),
        (changed(effect="harmless"), "effect must be one of read, write, execute, network"),
        (changed(description=""), "does not say its description"),
        (changed(free_text="words"), "free_text names no parameter"),
        (type("Abstract", (Tool,), {**vars(Nothing), "run": Tool.run}), "abstract"),
        (registry, "a tool is a class made from"),
    ],
)
def test_a_class_that_is_no_tool_is_refused_in_one_line(tool_class: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told) as caught:
        register_tool(tool_class, "mine")
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="no toolset"):
        toolset("mine")


@pytest.mark.parametrize("name", ["", "Mine", "a,b", "../x", "x" * 41])
def test_a_toolset_needs_a_plain_name(name: str) -> None:
    with pytest.raises(UsageError, match="no toolset can be called"):
        register_tool(Searching, name)


def test_two_tools_of_one_name_are_a_bug() -> None:
    with pytest.raises(ValueError, match="share a name"):
        registry(Nothing(), Nothing())


@pytest.mark.parametrize(
    ("field", "told"),
    [
        ((str, Field(max_length=5)), "needs a description"),
        ((str, Field(description="d")), "needs max_length"),
        ((list[int], Field(description="d")), "needs max_length"),
        ((list[str], Field(max_length=3, description="d")), "needs max_length"),
        ((dict[str, int], Field(description="d")), "forbid unknown fields"),
        ((Any, Field(description="d")), "not a type"),
    ],
)
def test_a_declaration_without_bounds_or_words_is_a_bug(field: tuple[Any, Any], told: str) -> None:
    made: Any = create_model("Made", __base__=Params, value=field)
    with pytest.raises(TypeError, match=told):
        plain_schema(made)
