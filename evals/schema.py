"""The published JSON Schema of a trace, from AgentState: `python -m evals.schema` writes docs/trace.schema.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from agent.state import SCHEMA_VERSION, AgentState

SCHEMA_PATH = Path(__file__).resolve().parent.parent / "docs" / "trace.schema.json"


class _Written(GenerateJsonSchema):
    """A written trace has every field, also those that have a default."""

    def field_is_required(self, field: Any, total: bool) -> bool:  # noqa: ARG002  # pydantic's signature
        return True


def render_schema() -> str:
    """The schema as it stands in the file."""
    schema = AgentState.model_json_schema(schema_generator=_Written, mode="serialization")
    schema["properties"]["schema_version"]["const"] = SCHEMA_VERSION
    whole = {"$schema": _Written.schema_dialect, **schema, "title": "A Shoestring trace"}
    return json.dumps(whole, indent=2, ensure_ascii=True) + "\n"


if __name__ == "__main__":
    SCHEMA_PATH.write_text(render_schema(), encoding="ascii")
