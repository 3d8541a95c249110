"""The published schema is the one the code makes, and it fits what runs write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator, ValidationError

from evals.schema import SCHEMA_PATH, render_schema
from evals.traces import write_trace
from tests.support_traces import GENUINE, genuine, judged


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    document = json.loads(SCHEMA_PATH.read_text("ascii"))
    Draft202012Validator.check_schema(document)
    return Draft202012Validator(document)


def written(kind: str, folder: Path) -> dict[str, Any]:
    document = json.loads(write_trace(folder, judged(genuine(kind), case_id=kind)).read_text("ascii"))
    assert isinstance(document, dict)
    return document


def test_the_published_schema_is_up_to_date() -> None:
    assert SCHEMA_PATH.read_text("ascii") == render_schema(), "run: python -m evals.schema"


@pytest.mark.parametrize("kind", GENUINE)
def test_every_kind_of_trace_fits_it(kind: str, schema: Draft202012Validator, tmp_path: Path) -> None:
    schema.validate(written(kind, tmp_path))


@pytest.mark.parametrize(
    ("field", "value"),
    [("schema_version", 3), ("status", "fine"), ("steps", {}), ("surprise", 1), ("limits", {"max_calls": 1})],
)
def test_it_refuses_what_is_no_trace(field: str, value: object, schema: Draft202012Validator, tmp_path: Path) -> None:
    document = written("completed", tmp_path) | {field: value}
    with pytest.raises(ValidationError):
        schema.validate(document)


def test_a_field_that_is_missing_is_refused(schema: Draft202012Validator, tmp_path: Path) -> None:
    document = written("completed", tmp_path)
    del document["ledger"]
    with pytest.raises(ValidationError, match="'ledger' is a required property"):
        schema.validate(document)


def test_it_says_what_its_parts_mean() -> None:
    parts = json.loads(render_schema())["$defs"]
    assert all(part.get("description") for part in parts.values())
    assert "worst case" in parts["LedgerEntry"]["description"]
