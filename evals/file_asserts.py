"""Asserts on the files that a run left in its workspace, as its trace records them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, model_validator
from pydantic_core import PydanticCustomError

from agent.state import AgentState
from evals.assert_base import AssertSpec, Finding, Pattern, Text, Texts, fold, shorten
from evals.patterns import search
from evals.workspaces import MAX_TEXT_BYTES, checked_name, plain_path


def _as_due(check: Callable[[str], str]) -> Callable[[str], str]:
    """The check with its refusal as a validator reports it."""

    def checked(value: str) -> str:
        try:
            return check(value)
        except ValueError as error:
            raise PydanticCustomError("file_name", "{why}", {"why": str(error)}) from None

    return checked


def _held(value: str) -> str:
    if len(value.encode()) > MAX_TEXT_BYTES:
        due = f"may take at most {MAX_TEXT_BYTES >> 10} KiB: of a longer file the trace holds no text"
        raise PydanticCustomError("file_text", "{due}", {"due": due})
    return value


FileName = Annotated[str, AfterValidator(_as_due(checked_name))]  # that a suite gives
FilePath = Annotated[Text, AfterValidator(_as_due(plain_path))]  # that a model may have made, of any length


class FileIs(AssertSpec):
    """The workspace holds this file when the run has ended, and its text meets every demand; or it is not there.

    `equals` is the whole text, a line end at its end apart. `unchanged` is what the file was when the run began.
    """

    type: Literal["file"]
    path: FilePath
    equals: Annotated[str, AfterValidator(_held)] | None = None
    contains: Texts | None = None
    not_contains: Texts | None = None
    regex: Pattern | None = None
    unchanged: bool = False
    absent: bool = False

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Self:
        demands = (self.equals, self.contains, self.not_contains, self.regex)
        if self.absent and (self.unchanged or any(demand is not None for demand in demands)):
            raise PydanticCustomError("file_demand", "a file that is to be absent can have no text")
        return self

    def check(self, state: AgentState) -> Finding:
        after = {file.path: file for file in state.workspace.after} if state.workspace else {}
        file = after.get(self.path)
        there = f"there: {shorten(', '.join(after), 120) or 'no file'}"
        if self.absent:
            return Finding(file is None, there)
        if file is None:
            return Finding(False, f"no {shorten(self.path, 60)}; {there}")
        before = {known.path: known for known in state.workspace.before} if state.workspace else {}
        if self.unchanged and (self.path not in before or before[self.path].sha256 != file.sha256):
            return Finding(False, "it is not as it was")
        if file.text is None:
            asked = (self.equals, self.contains, self.not_contains, self.regex)
            return Finding(all(demand is None for demand in asked), "the trace does not hold its text")
        return Finding(self._fits(file.text), f"it holds: {shorten(file.text, 150)}")

    def _fits(self, text: str) -> bool:
        seen = fold(text)
        return (
            (self.equals is None or text.rstrip("\n") == self.equals.rstrip("\n"))
            and (self.contains is None or all(fold(part) in seen for part in self.contains))
            and (self.not_contains is None or not any(fold(part) in seen for part in self.not_contains))
            and (self.regex is None or search(self.regex, text, case_sensitive=True))
        )
