"""Suites and cases: the file format, read with the line of every mistake. See docs/suites.md."""

from __future__ import annotations

import hashlib
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

from agent.state import content_hash
from evals.assert_base import Share, number_due, text_due
from evals.asserts import Assert, passes_on_nothing
from evals.corpus import corpus_files, find_corpus
from evals.suite_errors import explain
from evals.suite_yaml import Document, read_yaml, shown

MAX_TASK = 200_000
MAX_ID = 200
NOT_YET = ("turns", "workspace", "now", "approve")
_NOT_CONTENT = {"id", "tags", "weight", "epochs", "corpus"}


def _printable(value: str) -> str:
    if not value.isprintable() or value != value.strip():
        raise PydanticCustomError("printable", "must be printable characters, without spaces around them")
    return value


Name = Annotated[str, Field(max_length=MAX_ID), AfterValidator(_printable), BeforeValidator(text_due)]
Names = Annotated[list[Name], Field(min_length=1, max_length=100)]
Above = Annotated[float, Field(gt=0, allow_inf_nan=False), BeforeValidator(number_due)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class CaseLimits(_Model):
    """Caps of a case's runs in place of the settings'; None leaves the setting. Dollars are simulated."""

    max_calls: PositiveInt | None = None
    max_cost_usd: Share | None = Field(default=None, ge=0.000001)
    max_seconds: Above | None = None
    max_completion_tokens: PositiveInt | None = None

    @property
    def max_cost_microusd(self) -> int | None:
        """The dollars in the unit of the budget, rounded down."""
        return None if self.max_cost_usd is None else int(Decimal(repr(self.max_cost_usd)) * 1_000_000)


class Case(_Model):
    """One task with what it is given and what it is judged by. None leaves a field to the settings or the strategy.

    `corpus` is the resolved folder. `weight` counts in a suite's score, not in a verdict.
    """

    id: Name
    task: Annotated[str, Field(max_length=MAX_TASK), BeforeValidator(text_due)]
    strategy: Name | None = None
    toolset: Name | None = None
    tools: Names | None = None
    corpus: Path | None = None
    limits: CaseLimits = CaseLimits()
    epochs: Annotated[int, Field(ge=1, le=100)] = 1
    tags: list[Name] = Field(default=[], max_length=100)
    evidence: bool | None = None
    weight: Above = 1.0
    asserts: Annotated[list[Assert], Field(min_length=1, max_length=200)]

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, value: Any) -> Any:
        for name in NOT_YET:
            if isinstance(value, dict) and name in value:
                raise PydanticCustomError("not_yet", "{name}", {"name": name})
        return value

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
    def _proves_something(self) -> Self:
        if passes_on_nothing(self.asserts):
            raise PydanticCustomError(
                "vacuous", "its asserts would pass on an empty run; add one on what must be there"
            )
        return self


class Suite(_Model):
    """A file of cases, in its order. `name` is the file's name without its ending."""

    path: Path
    cases: list[Case]

    @property
    def name(self) -> str:
        """What the suite is called in traces and reports."""
        return self.path.stem


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
        cases.append(case)
    return Suite(path=document.path, cases=cases)


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


def _read_case(document: Document, place: int, value: Any) -> Case:
    try:
        return Case.model_validate(value, context={"folder": document.path.parent})
    except ValidationError as error:
        raise explain(error, document, place, value, Case) from None
