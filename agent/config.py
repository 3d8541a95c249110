"""Settings: the only reader of the environment and of `.env`. Flags override them; everything is validated here."""

from __future__ import annotations

import difflib
import math
import os
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from dotenv import dotenv_values
from pydantic import Field, PrivateAttr, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from agent.budget import Limits, Prices
from agent.errors import UsageError
from agent.state import Sampling

BackendName = Literal["auto", "ollama", "openai", "embedded", "scripted"]
MICRO = 1_000_000
SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD")  # in the name of a variable
MIN_KEY_CHARS = 8  # a shorter value of a KEY or TOKEN is a switch or a number
MIN_PASSWORD_CHARS = 4  # people choose short ones; still shorter ones would take ordinary words apart
_CHOSEN_BY_PEOPLE = ("SECRET", "PASSWORD")
# What such a name may be set to without being one, or is no secret to anybody. Taken out, they would tear texts apart.
_COMMON_WORDS = frozenset(
    (
        *("true", "false", "none", "null", "auto", "default", "enabled", "disabled", "required", "optional", "always"),
        *("never", "prompt", "file", "keyring", "test", "example", "secret", "password", "changeme", "admin", "root"),
    )
)
MAX_SECONDS = 1_000_000  # more than this a socket cannot wait
EMBEDDED_MODEL = Path(__file__).resolve().parent.parent / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"

# What a setting has to be, by the validator's word for the fault; {} is filled from what the validator knows.
_DUE = {
    "bool_parsing": "must be true or false",
    "decimal_parsing": "must be a number of US dollars, 0 or more",
    "finite_number": "must be a finite number",
    "float_parsing": "must be a number",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a whole number of fewer digits",
    "literal_error": "must be {expected}",
    "greater_than": "must be above {gt:.15g}",
    "greater_than_equal": "must be at least {ge:.15g}",
    "less_than_equal": "must be at most {le:.15g}",
}

# What a program needs to be found, to find its files, and to speak the person's language.
_HARMLESS = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR")


class Settings(BaseSettings):
    """Every setting, with its default. A description of each stands in `.env.example`."""

    model_config = SettingsConfigDict(env_file=".env", env_file_encoding="utf-8", extra="ignore", env_ignore_empty=True)

    llm_backend: BackendName = "auto"
    llm_model: str = "llama3.2:3b"
    embedded_model: Path = EMBEDDED_MODEL
    embedded_threads: int | None = Field(None, ge=1, le=1024)
    scripted_replies: Path | None = None
    ollama_host: str = "http://127.0.0.1:11434"
    ollama_auto_pull: bool = False
    llm_base_url: str | None = None
    llm_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_base_url: str | None = None
    embedding_api_key: SecretStr | None = None
    num_ctx: int = Field(8192, ge=512, le=1_048_576)
    temperature: float = Field(0.0, ge=0.0, le=2.0, allow_inf_nan=False)
    seed: int = Field(7, ge=0, le=2**31 - 1)
    max_llm_calls: int = Field(10, ge=1, le=10_000)
    max_cost_usd: Decimal = Field(Decimal("0.20"))
    max_run_seconds: float = Field(600.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    max_completion_tokens: int = Field(512, ge=16, le=131_072)
    call_timeout_seconds: float = Field(120.0, gt=0, le=MAX_SECONDS, allow_inf_nan=False)
    max_batch_cost_usd: Decimal | None = None
    price_prompt_per_1k: Decimal = Field(Decimal("0.01"))
    price_completion_per_1k: Decimal = Field(Decimal("0.03"))
    price_embedding_per_1k: Decimal = Field(Decimal("0.0001"))
    strategy: str = "react"
    toolset: str = "core"
    workspace_dir: Path | None = None
    keep_workspaces: bool = False
    sandbox: Literal["auto", "bubblewrap", "landlock", "external"] = "auto"
    search_provider: Literal["auto", "ddgs", "searxng", "corpus"] = "auto"
    searxng_url: str | None = None
    search_api_key: SecretStr | None = None
    weather_base_url: str = "https://wttr.in"
    intranet_hosts: str = ""
    chromium_path: Path | None = None
    mcp_config: Path = Path("mcp.json")
    traces_dir: Path = Path("traces")
    _others_secrets: tuple[str, ...] = PrivateAttr(())

    @field_validator(
        *("max_cost_usd", "max_batch_cost_usd", "price_prompt_per_1k", "price_completion_per_1k"),
        "price_embedding_per_1k",
    )
    @classmethod
    def _whole_microdollars(cls, value: Decimal | None) -> Decimal | None:
        if value is None:
            return None
        if not value.is_finite() or value < 0:
            raise ValueError("must be a number of US dollars, 0 or more")
        if value > 1_000_000:
            raise ValueError("must be at most 1,000,000 US dollars")
        if value * MICRO != (value * MICRO).to_integral_value():
            raise ValueError("must be a whole number of micro-dollars (at most six decimals)")
        return value

    @model_validator(mode="after")
    def _a_dollar_cap_needs_prices(self) -> Settings:
        if not self.price_prompt_per_1k and not self.price_completion_per_1k:
            raise ValueError(
                "MAX_COST_USD can never be reached while PRICE_PROMPT_PER_1K and PRICE_COMPLETION_PER_1K are both 0;"
                " give at least one of them a price"
            )
        return self

    def secret_values(self) -> tuple[str, ...]:
        """Every secret that is set, to be kept out of traces, logs and prompts: our own, and other programs' by their
        names. What stands in another setting (a model's name) is none."""
        values = [getattr(self, name) for name in type(self).model_fields]
        own = [value.get_secret_value() for value in values if isinstance(value, SecretStr)]
        plain = {str(value) for value in values if not isinstance(value, SecretStr)}
        return tuple(dict.fromkeys([*own, *(value for value in self._others_secrets if value not in plain)]))

    def limits(self) -> Limits:
        """The caps of one run."""
        return Limits(
            max_calls=self.max_llm_calls,
            max_cost_microusd=microusd(self.max_cost_usd),
            max_seconds=self.max_run_seconds,
        )

    def prices(self) -> Prices:
        """The simulated prices."""
        return Prices(
            microusd(self.price_prompt_per_1k),
            microusd(self.price_completion_per_1k),
            microusd(self.price_embedding_per_1k),
        )

    def sampling(self) -> Sampling:
        """What is sent with every call."""
        return Sampling(
            temperature=self.temperature,
            seed=self.seed,
            num_ctx=self.num_ctx,
            max_completion_tokens=self.max_completion_tokens,
        )


def environment_of_programs() -> dict[str, str]:
    """What a program that a person listed (an MCP server) gets of the environment: nothing that could be a secret."""
    return {name: os.environ[name] for name in _HARMLESS if name in os.environ}


def microusd(usd: Decimal | float | str) -> int:
    """US dollars as whole micro-dollars.

    Raises:
        UsageError: not a finite number of at least 0 with at most six decimals.
    """
    try:
        amount = Decimal(str(usd))
    except InvalidOperation:
        raise UsageError(f"{usd!r} is not an amount of US dollars; write it like 0.20") from None
    if not amount.is_finite() or amount < 0 or amount * MICRO != (amount * MICRO).to_integral_value():
        raise UsageError(f"{usd} is not an amount of US dollars; it must be 0 or more, with at most six decimals")
    return int(amount * MICRO)


def load_settings(env_file: Path | None = None, **overrides: Any) -> Settings:
    """Settings from the environment, then `.env`, with flags over both; an override of None means "not given".

    Raises:
        UsageError: a value is out of range or of the wrong kind; every fault is named, on one line.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    path = Path(".env") if env_file is None else env_file
    if path.exists() and not path.is_file():
        raise UsageError(f"{path}: is no file; settings are UTF-8 lines of NAME=value")
    try:
        _refuse_misspelt(path)
        settings = Settings(_env_file=path if path.is_file() else None, **given)
        settings._others_secrets = _others_secrets(path)
        return settings
    except ValidationError as error:
        raise UsageError(_one_line(error)) from None
    except (UnicodeDecodeError, OSError) as error:
        raise UsageError(f"{path}: cannot be read ({error}); it must be UTF-8 lines of NAME=value") from None


def _refuse_misspelt(path: Path) -> None:
    """A cap that is misspelt would be a cap that is not there. Other programs' names may stand in the file too."""
    known = [name.upper() for name in Settings.model_fields]
    for name in dotenv_values(path) if path.is_file() else ():
        near = difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.8)
        if near and name.upper() not in known:
            raise UsageError(f"{path}: unknown setting {name:.60}; did you mean {near[0]}?")


def _others_secrets(path: Path) -> tuple[str, ...]:
    """The values that the environment and `.env` give to names of secrets that are none of our settings."""
    known = {name.upper() for name in Settings.model_fields}
    in_file = dotenv_values(path) if path.is_file() else {}
    named = [item for item in (*os.environ.items(), *in_file.items()) if item[0].upper() not in known]
    return tuple(value for name, value in named if value and _is_others_secret(name.upper(), value))


def _is_others_secret(name: str, value: str) -> bool:
    """Whether a variable of another program holds a secret, by its name and by the look of its value."""
    least = MIN_PASSWORD_CHARS if any(word in name for word in _CHOSEN_BY_PEOPLE) else MIN_KEY_CHARS
    is_named_so = any(word in name for word in SECRET_WORDS)
    return is_named_so and len(value) >= least and value.casefold() not in _COMMON_WORDS


def _one_line(error: ValidationError) -> str:
    faults = []
    for fault in error.errors(include_url=False):
        name = ".".join(str(part) for part in fault["loc"]).upper()
        due = _DUE.get(fault["type"])
        message = due.format_map(fault.get("ctx", {})) if due else fault["msg"].removeprefix("Value error, ")
        given = fault["input"]
        shown = f" (got {given!r:.60})" if name and not _is_secret(name) and not _is_nan(given) else ""
        faults.append(f"{name}: {message}{shown}" if name else message)
    return "; ".join(faults) + ". Set it in the environment, in .env, or by its flag."


def _is_secret(name: str) -> bool:
    return any(word in name for word in ("KEY", "TOKEN_", "SECRET", "PASSWORD"))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)
