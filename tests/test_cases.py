"""A suite with a mistake is refused in one line that names the file, the line, and the way to mend it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import UsageError
from evals.cases import CaseLimits, load_suite
from evals.suite_yaml import MAX_BYTES
from tests.support_suites import GOOD, refused, with_assert, with_field, write_suite


def test_a_case_takes_every_field(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nText.\n")
    fields = (
        "strategy: react\n  toolset: core\n  tools: [calculate_math]\n  corpus: docs\n  epochs: 3\n  tags: [x, y]\n"
        "  evidence: false\n  weight: 2\n"
        "  limits: {max_calls: 4, max_cost_usd: 0.1, max_seconds: 9.5, max_completion_tokens: 99}"
    )
    suite = load_suite(write_suite(tmp_path, with_field(fields)))
    (case,) = suite.cases
    assert suite.name == "suite"
    assert (case.id, case.task, case.strategy, case.toolset) == ("first", "Add two and two.", "react", "core")
    assert (case.tools, case.epochs, case.tags, case.evidence) == (["calculate_math"], 3, ["x", "y"], False)
    assert (case.corpus, case.weight) == ((tmp_path / "docs").resolve(), 2)
    assert case.limits == CaseLimits(max_calls=4, max_cost_usd=0.1, max_seconds=9.5, max_completion_tokens=99)
    assert case.limits.max_cost_microusd == 100_000


def test_what_is_left_out_is_left_to_the_settings(tmp_path: Path) -> None:
    (case,) = load_suite(write_suite(tmp_path, GOOD)).cases
    assert (case.strategy, case.toolset, case.tools, case.corpus, case.evidence) == (None,) * 5
    assert (case.limits, case.epochs, case.tags, case.weight) == (CaseLimits(), 1, [], 1)
    assert case.limits.max_cost_microusd is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (GOOD.replace("task", "taks"), "3: unknown field 'taks' in case 'first'; did you mean 'task'?"),
        (GOOD.replace("cases", "case"), "1: unknown field 'case'; a suite has one: 'cases'"),
        (with_field("xyzzy: 1"), "3: unknown field 'xyzzy' in case 'first'; known: id, task, turns, strategy"),
        (with_field("limits: {max_call: 1}"), "3: unknown field 'max_call' in case 'first'; did you mean 'max_calls'?"),
        (GOOD.replace("  task: Add two and two.\n", ""), "case 'first': needs a task, or turns for a conversation"),
        (GOOD.replace("id: first", "tags: []"), "2: case number 1 lacks the field 'id'"),
        (GOOD.replace("Add two and two.", ""), "3: 'task' in case 'first': needs a text, not nothing"),
        (GOOD.replace("Add two and two.", '"  "'), "3: 'task' in case 'first': needs a text that is not blank"),
        (GOOD.replace("Add two and two.", "42"), "3: 'task' in case 'first': needs a text, not 42: put it in quotes"),
        (GOOD.replace("Add two and two.", "x" * 200_001), "may have at most 200000 characters"),
        (GOOD + GOOD.removeprefix("cases:\n"), "6: the id 'first' is used before, on line 2; ids must differ"),
        (
            with_field("workspace: {c: x,\n    a/b/c: y,\n    a: z}"),
            "4: case 'first': the file 'a/b/c' is below 'a', a file too",
        ),
        (with_field("workspace:\n    ok: x\n    " + "d/" * 20 + "x: y"), "5: 'd/d/d/d"),
        (with_field("id: second"), "3: the key 'id' stands here twice (first on line 2); keep one"),
        (
            with_field("turns: [a]"),
            "case 'first': needs a task, or turns for a conversation of several; one of the two",
        ),
        (with_field("workspace: {/etc/x: y}"), "must be a plain path below the workspace"),
        (with_field("workspace: {a/../b: y}"), "must be a plain path below the workspace"),
        (with_field("workspace: [a]"), "3: 'workspace' in case 'first': needs a mapping"),
        (with_field("workspace: {a.txt: 1}"), "in case 'first': needs a text"),
        (with_field("now: soon"), "3: 'now' in case 'first': must be a time with its zone"),
        (with_field("now: '2026-03-14T09:26:53'"), "3: 'now' in case 'first': must be a time with its zone"),
        (with_field("approve: x"), "3: 'approve' in case 'first': needs a mapping"),
        (with_field("approve: {write: maybe}"), "must be 'allow', 'ask' or 'deny'"),
        (
            GOOD.replace("value: 4}", "value: 4, turn: 2}"),
            "5: case 'first': the assert answer_number is about turn 2",
        ),
        ("", "1: the file is empty"),
        ("# nothing\n", "1: the file is empty"),
        ("cases: []", "1: 'cases:' needs a list of at least one case"),
        ("cases: x", "1: 'cases:' needs a list of at least one case"),
        ("[1]", "1: a suite is a mapping that starts with 'cases:'"),
        ("cases: [x]", "1: case number 1: needs a mapping"),
        (
            GOOD.replace("\n  - {type: answer_number, value: 4}", " []"),
            "4: 'asserts' in case 'first': needs at least 1 item",
        ),
    ],
)
def test_a_mistake_in_a_case(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("{type: answer_contain, value: a}", "unknown assert type 'answer_contain' in case 'first'; did you mean"),
        ("{type: zzz}", "unknown assert type 'zzz' in case 'first'; known: answer_equals, answer_contains"),
        ("{value: a}", "an assert of case 'first' lacks its 'type'; known: answer_equals"),
        ("{type: answer_contains}", "the assert answer_contains of case 'first' lacks the field 'value'"),
        ("{type: answer_number, valeu: 1}", "unknown field 'valeu' in case 'first'; did you mean 'value'?"),
        ("{type: answer_contains, value: true}", "'value' in case 'first': needs a text, not true: put it in quotes"),
        ("{type: answer_contains, value: 12}", "'value' in case 'first': needs a text, not 12: put it in quotes"),
        ("{type: answer_contains, value: [a, 1]}", "needs a text, not 1"),
        ("{type: answer_contains, value: no}", 'no could be a word or a yes/no: write "no" in quotes'),
        ("{type: answer_number, value: '4'}", "needs a number, not '4'"),
        ("{type: answer_number, value: 1_000}", "needs a number, not '1_000'"),
        ("{type: answer_number, value: true}", "needs a number, not True"),
        ("{type: answer_number, value: .nan}", ".nan is not a number that anything can be held against"),
        ("{type: answer_number, value: -.inf}", "-.inf is not a number"),
        ("{type: answer_number, value: 1e999}", "1e999 is too large for a number"),
        ("{type: answer_number, value: 1, tolerance: -1}", "'tolerance' in case 'first': must be at least 0"),
        ("{type: answer_regex, value: '(a+)+'}", "it may backtrack too long"),
        ("{type: answer_regex, value: '(a'}", "not a regular expression"),
        ("{type: status, value: done}", "must be 'completed', 'budget_exhausted'"),
        ("{type: max_calls, value: 2.5}", "needs a whole number"),
        ("{type: tool_called, value: t, args: {q: {contain: a}}}", "unknown field 'contain'"),
        ("{type: tool_called, value: t, args: {q: {}}}", "'q' in case 'first': needs one of equals, contains"),
        ("{type: tool_result, tool: t, value: [1]}", "'value' in case 'first': needs a number, not [1]"),
        ("{type: any_of, value: [{type: statu, value: a}]}", "unknown assert type 'statu'"),
        ("{type: any_of, value: []}", "needs at least 1 item"),
        ("{type: answer_json, min_items: 3, max_items: 2}", "min_items is above max_items"),
        ("{type: file, path: ../x, equals: a}", "'path' in case 'first': a file's name must be a plain path below"),
        ("{type: file, path: /x, absent: true}", "'path' in case 'first': a file's name must be a plain path below"),
        ("{type: file, path: a/./x}", "'path' in case 'first': a file's name must be a plain path below"),
        ("{type: file, path: " + "x" * 256 + "}", "'path' in case 'first': each part of a file's name may take 255"),
        ("{type: file, path: 7}", "'path' in case 'first': needs a text, not 7: put it in quotes"),
        ("{type: file, path: x, equals: '" + "é" * 16385 + "'}", "'equals' in case 'first': may take at most 32 KiB"),
        ("{type: file, path: x, unchanged: true}", "case 'first': 'x' is to be unchanged, and 'workspace' has no such"),
        ("{type: answer_contains, value: a, turn: 2}", "case 'first': the assert answer_contains is about turn 2, and"),
        ("5", "'asserts' in case 'first': needs a mapping"),
    ],
)
def test_a_mistake_in_an_assert(tmp_path: Path, fields: str, said: str) -> None:
    message = refused(tmp_path, with_assert(fields))
    assert message.startswith("5: ")
    assert said in message


@pytest.mark.parametrize(
    "fields",
    [
        "{type: max_calls, value: 3}",
        "{type: tool_not_called, value: t}",
        "{type: any_of, value: [{type: answer_contains, value: a}, {type: status, value: budget_exhausted}]}",
    ],
)
def test_asserts_that_an_empty_run_would_pass_are_refused(tmp_path: Path, fields: str) -> None:
    assert "2: case 'first': its asserts would pass on an empty run" in refused(tmp_path, with_assert(fields))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("epochs: 0", "must be at least 1"),
        ("epochs: 101", "must be at most 100"),
        ("epochs: 1.5", "needs a whole number"),
        ("weight: 0", "must be above 0"),
        ("evidence: 'no'", "needs true or false"),
        ("tags: x", "needs a list"),
        ("tools: []", "needs at least 1 item"),
        ("strategy: 5", "needs a text, not 5"),
        ("limits: {max_calls: 0}", "'max_calls' in case 'first': must be above 0"),
        ("limits: {max_calls: -1}", "must be above 0"),
        ("limits: {max_calls: true}", "needs a whole number"),
        ("limits: {max_cost_usd: 0}", "must be at least"),
        ("limits: {max_cost_usd: -0.1}", "must be at least"),
        ("limits: {max_cost_usd: 0.0000001}", "must be at least"),
        ("limits: {max_seconds: 0}", "must be above 0"),
        ("limits: {max_seconds: .inf}", "is not a number"),
        ("limits: {max_completion_tokens: 1e3}", "needs a whole number"),
        ("limits: {max_calls: 10001}", "'max_calls' in case 'first': must be at most 10000"),
        ("limits: {max_cost_usd: 1e300}", "'max_cost_usd' in case 'first': must be at most 1000000"),
        ("limits: {max_seconds: 1e300}", "'max_seconds' in case 'first': must be at most 1000000"),
        ("limits: {max_completion_tokens: 131073}", "'max_completion_tokens' in case 'first': must be at most 131072"),
        ("weight: 1e300", "'weight' in case 'first': must be at most 1000000"),
        (f"weight: {'9' * 400}", "'weight' in case 'first': needs a number"),
    ],
)
def test_a_value_out_of_bounds(tmp_path: Path, line: str, said: str) -> None:
    message = refused(tmp_path, with_field(line))
    assert message.startswith("3: ")
    assert said in message


def test_an_assert_inside_others_is_refused_on_its_own_line(tmp_path: Path) -> None:
    inner = (
        "{type: any_of, value: [\n    {type: answer_contains, value: a},\n    {type: file, path: b, unchanged: true}]}"
    )
    assert refused(tmp_path, with_assert(inner)).startswith("7: case 'first': 'b' is to be unchanged")
    there = with_assert("{type: file, path: b, unchanged: true}").replace("  task:", "  workspace: {b: x}\n  task:")
    assert load_suite(write_suite(tmp_path, there)).cases[0].workspace == {"b": "x"}


@pytest.mark.parametrize(
    "id_", ['"a\\tb"', '"a\\nb"', '" a"', '""', "x" * 201, '"a\\u202eb"', "12", '"\\e[31m"', '"a\\u200bb"']
)
def test_an_id_that_cannot_be_shown_is_refused(tmp_path: Path, id_: str) -> None:
    assert refused(tmp_path, GOOD.replace("first", id_)).startswith("2: ")


def test_an_id_is_free_text_and_never_a_path(tmp_path: Path) -> None:
    (case,) = load_suite(write_suite(tmp_path, GOOD.replace("first", "'../../etc/passwd: é'"))).cases
    assert case.id == "../../etc/passwd: é"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cases:\n\t- id: a", "2: not valid YAML: found character that cannot start any token; indent with spaces"),
        ("cases:\n- id: a\n  task: b: c\n", "3: not valid YAML: mapping values are not allowed"),
        ("cases: [", "not valid YAML"),
        ('a: "b', "not valid YAML"),
        ("--- a\n--- b\n", "2: not valid YAML: but found another document"),
        ("a: &x 1\nb: *x\n", "1: anchors and aliases (& and *) are not used in suites"),
        ("a: *x\n", "1: anchors and aliases"),
        ("a: !!python/object/apply:os.system [id]\n", "1: tags ('tag:yaml.org,2002:python"),
        ("<<: {a: 1}\n", "1: unknown field '<<'"),
        ("? [a]\n: b\n", "1: a key must be a plain word"),
        ("[" * 50, "nested deeper than 20 levels"),
        ("a: " + "{a: " * 5000, "nest"),
        ("- a\n" * 100_001, "more than 100000 values; split the suite"),
        (b"cases:\n- id: \xff\n", "2: not UTF-8; save the file as UTF-8"),
        ("cases:\n- id: \x07\n", "2: a control character ('\\x07') is not allowed"),
        ('cases:\n- id: "\\x1b[2J"\n', "2: a control character ('\\x1b') is not allowed"),
        ('cases:\n- id: "\\ud800"\n', "2: not valid YAML"),
        (f"a: {'9' * 401}\n", "1: a number of 401 characters is too long"),
        ("a: " + "x" * MAX_BYTES, "is larger than 5 MiB; split the suite"),
    ],
)
def test_yaml_that_suites_are_not_written_in(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is a folder; name a suite file in it"),
        (tmp_path / "none.yaml", "does not exist; name a suite file"),
        (tmp_path / "none.yaml" / "x", "does not exist"),
        (Path("a\0b"), "cannot be read: embedded null byte"),
    ):
        with pytest.raises(UsageError, match=said):
            load_suite(path)
    (tmp_path / "file").write_text(GOOD)
    with pytest.raises(UsageError, match="cannot be read"):
        load_suite(tmp_path / "file" / "x.yaml")


def test_words_are_read_as_yaml_1_2_reads_them(tmp_path: Path) -> None:
    text = (
        GOOD.replace("Add two and two.", "2024-05-01").replace("first", "12:30:45")
        + "  tags: [nope, Yes!, 0x1F, 1_0]\n"
    )
    (case,) = load_suite(write_suite(tmp_path, "\ufeff" + text.replace("\n", "\r\n"))).cases
    assert (case.id, case.task, case.tags) == ("12:30:45", "2024-05-01", ["nope", "Yes!", "0x1F", "1_0"])


_READABLE = st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\n\t")


@given(st.text(_READABLE, max_size=60))
def test_a_quoted_task_comes_out_as_it_went_in(tmp_path_factory: pytest.TempPathFactory, task: str) -> None:
    quoted = "".join(f"\\U{ord(char):08x}" for char in task)
    text = GOOD.replace("Add two and two.", f'"x{quoted}"')
    (case,) = load_suite(write_suite(tmp_path_factory.getbasetemp(), text)).cases
    assert case.task == f"x{task}"


@given(st.binary(max_size=80) | st.text(alphabet="abcdeistk:-{}[]!&*'\"#|>?%@`, \n\t0.\\", max_size=60))
def test_no_file_is_answered_by_a_traceback(tmp_path_factory: pytest.TempPathFactory, text: bytes | str) -> None:
    start = b"cases:\n- " if isinstance(text, bytes) else "cases:\n- "
    path = write_suite(tmp_path_factory.getbasetemp(), start + text)  # type: ignore[operator]  # both of one kind
    with pytest.raises(UsageError):
        load_suite(path)
