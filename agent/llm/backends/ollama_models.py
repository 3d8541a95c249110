"""What Ollama tells about the models it holds (`/api/tags`), serves (`/api/ps`) and knows (`/api/show`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agent.llm.wire_values import as_dict, as_text, as_whole


@dataclass(frozen=True)
class LocalModel:
    """A model that the server holds. `size` is in bytes.

    `context_window` is the window it was trained for, or the one it is served with where it comes from `/api/ps`.
    """

    name: str
    digest: str | None = None
    size: int | None = None
    quantization: str | None = None
    parameters: str | None = None
    context_window: int | None = None
    capabilities: tuple[str, ...] = ()  # none where the server does not tell


def full_name(model: str) -> str:
    """A model's name as the server lists it: without a tag it is `:latest`."""
    name = model.strip()
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


def models_in(answer: dict[str, Any]) -> list[LocalModel]:
    """The models of an answer of `/api/tags` or `/api/ps`, in its order; entries without a name are left out."""
    entries = answer.get("models")
    found = [_model(as_dict(entry)) for entry in entries] if isinstance(entries, list) else []
    return [model for model in found if model.name]


def context_window(show: dict[str, Any]) -> int | None:
    """The window the model was trained for, out of an answer of `/api/show`."""
    info = as_dict(show.get("model_info"))
    return as_whole(info.get(f"{info.get('general.architecture')}.context_length"))


def capabilities(answer: dict[str, Any]) -> tuple[str, ...]:
    """What the model can do, out of `/api/show` or an entry of `/api/tags`; none where it is not told in words."""
    told = answer.get("capabilities")
    return tuple(told) if isinstance(told, list) and all(isinstance(word, str) for word in told) else ()


def _model(entry: dict[str, Any]) -> LocalModel:
    details = as_dict(entry.get("details"))
    served = as_whole(entry.get("context_length"))
    return LocalModel(
        name=as_text(entry.get("name")) or as_text(entry.get("model")),
        digest=as_text(entry.get("digest")) or None,
        size=as_whole(entry.get("size")),
        quantization=as_text(details.get("quantization_level")) or None,
        parameters=as_text(details.get("parameter_size")) or None,
        context_window=served or as_whole(details.get("context_length")),
        capabilities=capabilities(entry),
    )
