"""Suites and cases: the file format, read with the line of every mistake. See docs/suites.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from agent.state import Permission, content_hash
from evals.assert_base import AssertSpec, Share, number_due, text_due
from evals.asserts import Assert, passes_on_nothing
from evals.corpus import corpus_files, find_corpus
from evals.file_asserts import FileIs, FileName
from evals.suite_errors import explain
from evals.suite_yaml import Document, Key, read_yaml, shown, shown_path
from evals.workspaces import below_files

MAX_TASK = 200_000
MAX_ID = 200
MAX_TURNS = 50
MAX_FILES = 100
MAX_FILE = 200_000
MAX_NUMBER = 1_000_000  # of seconds, as in the settings, and of a weight
_NOT_CONTENT = {"id", "tags", "weight", "epochs", "corpus"}


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise PydanticCustomError("printable", "must be printable characters, without spaces around them")
    return value


Name = Annotated[str, Field(max_length=MAX_ID), AfterValidator(_printable), BeforeValidator(text_due)]


def _with_zone(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    at_the_edge = moment is not None and not 1 < moment.year < 9999  # where another zone's time may be no date
    if moment is None or moment.utcoffset() is None or at_the_edge:
        raise PydanticCustomError("now", "must be a time with its zone, in quotes (like 2026-03-14T09:26:53+00:00)")
    return value


Turn = Annotated[str, Field(max_length=MAX_TASK), BeforeValidator(text_due)]
FileText = Annotated[str, Field(max_length=MAX_FILE)]
Now = Annotated[str, AfterValidator(_with_zone), BeforeValidator(text_due)]
Names = Annotated[list[Name], Field(min_length=1, max_length=100)]
Above = Annotated[float, Field(gt=0, le=MAX_NUMBER, allow_inf_nan=False), BeforeValidator(number_due)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CaseLimits(_Model):
    """Caps of a case's runs in place of the settings'; None leaves the setting. Dollars are simulated."""

    max_calls: PositiveInt | None = Field(default=None, le=10_000)
    max_cost_usd: Share | None = Field(default=None, ge=0.000001, le=1_000_000)
    max_seconds: Above | None = None
    max_completion_tokens: PositiveInt | None = Field(default=None, le=131_072)

    @property
    def max_cost_microusd(self) -> int | None:
        """The dollars in the unit of the budget, rounded down."""
        return None if self.max_cost_usd is None else int(Decimal(repr(self.max_cost_usd)) * 1_000_000)


class Case(_Model):
    """One task with what it is given and what it is judged by. None leaves a field to the settings or the strategy.

    `turns` are several of the user's in place of one `task`. `corpus` is the resolved folder, `workspace` the files
    that the run finds in its own, by path, `now` the time that its clock shows. `approve` says by effect or tool what
    is allowed, asked or denied. `weight` counts in a suite's score, not in a verdict.
    """

    id: Name
    task: Turn | None = None
    turns: Annotated[list[Turn], Field(min_length=1, max_length=MAX_TURNS)] | None = None
    strategy: Name | None = None
    toolset: Name | None = None
    tools: Names | None = None
    corpus: Path | None = None
    workspace: Annotated[dict[FileName, FileText], Field(max_length=MAX_FILES)] = {}
    now: Now | None = None
    approve: dict[Name, Permission] = {}
    limits: CaseLimits = CaseLimits()
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    tags: list[Name] = Field(default=[], max_length=100)
    evidence: bool | None = None
    weight: Above = 1.0
    asserts: Annotated[list[Assert], Field(min_length=1, max_length=200)]

    @property
    def first_turn(self) -> str:
        """The user's first turn."""
        return self.turns[0] if self.turns else self.task or ""

    @property
    def follow_ups(self) -> tuple[str, ...]:
        """The user's turns after the first."""
        return tuple(self.turns[1:]) if self.turns else ()

    @field_validator("task", mode="before")
    @classmethod
    def _given(cls, value: object) -> object:
        return text_due(value)  # a task that stands there and is empty is a mistake, not a case with turns

    @field_validator("corpus", mode="before")
    @classmethod
    def _below_the_suite(cls, value: object, info: ValidationInfo) -> object:
        if value is None or isinstance(value, Path):
            return value
        try:
            return find_corpus(str(text_due(value)), (info.context or {})["folder"])
        except ValueError as error:
            raise PydanticCustomError("corpus", "{why}", {"why": str(error)}) from None

    @model_validator(mode="after")
    def _has_turns(self) -> Self:
        if (self.task is None) == (self.turns is None):
            raise PydanticCustomError("turns", "needs a task, or turns for a conversation of several; one of the two")
        return self

    @model_validator(mode="after")
    def _proves_something(self) -> Self:
        if passes_on_nothing(self.asserts):
            raise PydanticCustomError(
                "vacuous", "its asserts would pass on an empty run; add one on what must be there"
            )
        return self


def asserts_with_places(case: Case) -> Iterator[tuple[tuple[Key, ...], AssertSpec]]:
    """Every assert of a case, those inside others too, each with its path in the case."""
    left: list[tuple[tuple[Key, ...], AssertSpec]] = [(("asserts", n), spec) for n, spec in enumerate(case.asserts)]
    while left:
        path, spec = left.pop(0)
        yield path, spec
        inner = getattr(spec, "value", None)
        parts = enumerate(inner) if isinstance(inner, list) else ()
        left += [((*path, "value", n), part) for n, part in parts if isinstance(part, AssertSpec)]


@dataclass(frozen=True)
class Suite:
    """A file of cases, in its order."""

    document: Document = field(repr=False)
    cases: list[Case]

    @property
    def path(self) -> Path:
        """The file."""
        return self.document.path

    @property
    def name(self) -> str:
        """What the suite is called in traces and reports: the file's name without its ending."""
        return self.path.stem

    def where(self, case: Case, path: tuple[Key, ...] = ()) -> str:
        """What a message about a case begins with: the file, the line of this part of the case, and the case."""
        line = self.document.line(("cases", self.cases.index(case), *path))
        return f"{shown_path(self.path)}:{line}: case {shown(case.id)}"


def load_suite(path: Path | str) -> Suite:
    """Read and check a whole suite; nothing runs before all of it is right.

    Raises:
        UsageError: one line that names the file, the line, what is wrong, and how to mend it.
    """
    document = read_yaml(Path(path))
    cases, ids = [], dict[str, int]()
    for place, value in enumerate(_case_values(document)):
        case = _read_case(document, place, value)
        line = document.line(("cases", place, "id"))
        if case.id in ids:
            document.refuse(line, f"the id {shown(case.id)} is used before, on line {ids[case.id]}; ids must differ")
        ids[case.id] = line
        for name, file in below_files(case.workspace):
            line = document.line(("cases", place, "workspace", name))
            document.refuse(line, f"case {shown(case.id)}: the file {shown(name)} is below {shown(file)}, a file too")
        _refuse_what_never_holds(document, place, case)
        cases.append(case)
    return Suite(document, cases)


def case_hash(case: Case) -> str:
    """A hash of what a run of the case is given and judged by, the corpus' contents included.

    The id, tags, weight and number of epochs are left out: they change no run and no verdict.

    Raises:
        UsageError: the corpus can no longer be read.
    """
    content = case.model_dump(mode="json", exclude_defaults=True, exclude=_NOT_CONTENT)
    files = corpus_files(case.corpus) if case.corpus else []
    content["corpus"] = {name: hashlib.sha256(data).hexdigest() for name, data in files}
    return content_hash(content)


def _case_values(document: Document) -> list[Any]:
    value = document.value
    if value is None:
        document.refuse(1, "the file is empty; a suite is a list of cases under 'cases:'")
    if not isinstance(value, dict):
        document.refuse(1, "a suite is a mapping that starts with 'cases:'")
    for key in value:
        if key != "cases":
            document.refuse(document.line((key,)), f"unknown field {shown(key)}; a suite has one: 'cases'")
    cases = value.get("cases")
    if not isinstance(cases, list) or not cases:
        document.refuse(document.line(("cases",)), "'cases:' needs a list of at least one case")
    return cases


def _refuse_what_never_holds(document: Document, place: int, case: Case) -> None:
    """Refuse asserts on what the case does not have."""
    turns = 1 + len(case.follow_ups)
    for path, spec in asserts_with_places(case):
        if spec.turn is not None and spec.turn > turns:
            line, due = document.line(("cases", place, *path, "turn")), f"is about turn {spec.turn}, and there are"
            document.refuse(line, f"case {shown(case.id)}: the assert {spec.type} {due} {turns}")
        if isinstance(spec, FileIs) and spec.unchanged and spec.path not in case.workspace:
            line, file = document.line(("cases", place, *path, "path")), shown(spec.path)
            document.refuse(line, f"case {shown(case.id)}: {file} is to be unchanged, and 'workspace' has no such file")


def _read_case(document: Document, place: int, value: Any) -> Case:
    try:
        return Case.model_validate(value, context={"folder": document.path.parent})
    except ValidationError as error:
        raise explain(error, document, place, value, Case) from None
