"""Settings: what is out of range is refused in one line that names it; flags win over the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import Settings, load_settings, microusd
from agent.errors import UsageError

NOWHERE = Path("no-such.env")


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)


def test_defaults_are_ten_calls_and_twenty_cents() -> None:
    settings = load_settings(NOWHERE)
    limits, prices = settings.limits(), settings.prices()
    assert (limits.max_calls, limits.max_cost_microusd, limits.max_seconds) == (10, 200_000, 600.0)
    assert (prices.prompt_microusd_per_1k, prices.completion_microusd_per_1k) == (10_000, 30_000)
    assert (settings.num_ctx, settings.max_completion_tokens, settings.seed) == (8192, 512, 7)


@pytest.mark.parametrize(
    ("name", "value", "due"),
    [
        ("max_cost_usd", "-1", "must be a number of US dollars, 0 or more"),
        ("max_cost_usd", "NaN", "must be a finite number"),
        ("max_cost_usd", "inf", "must be a finite number"),
        ("max_cost_usd", "a lot", "must be a number of US dollars, 0 or more"),
        ("max_cost_usd", "0.1234567", "must be a whole number of micro-dollars (at most six decimals)"),
        ("max_llm_calls", "0", "must be at least 1"),
        ("max_llm_calls", "ten", "must be a whole number"),
        ("max_llm_calls", "1.5", "must be a whole number"),
        ("max_llm_calls", "9" * 5000, "must be a whole number of fewer digits"),
        ("temperature", "nan", "must be a finite number"),
        ("temperature", "hot", "must be a number"),
        ("temperature", "3", "must be at most 2"),
        ("max_run_seconds", "-1", "must be above 0"),
        ("max_run_seconds", "1e300", "must be at most 1000000"),
        ("call_timeout_seconds", "1e300", "must be at most 1000000"),
        ("max_completion_tokens", "0", "must be at least 16"),
        ("price_prompt_per_1k", "-0.01", "must be a number of US dollars, 0 or more"),
        ("llm_backend", "cloud", "must be 'auto', 'ollama', 'openai', 'embedded' or 'scripted'"),
        ("ollama_auto_pull", "perhaps", "must be true or false"),
        ("num_ctx", "1", "must be at least 512"),
    ],
)
def test_a_bad_value_is_one_line_that_names_the_setting(
    name: str, value: str, due: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name.upper(), value)
    with pytest.raises(UsageError) as refused:
        load_settings(NOWHERE)
    assert str(refused.value) == (
        f"{name.upper()}: {due} (got {value!r:.60}). Set it in the environment, in .env, or by its flag."
    )


def test_a_dollar_cap_without_prices_is_refused() -> None:
    with pytest.raises(UsageError, match="MAX_COST_USD can never be reached"):
        load_settings(NOWHERE, price_prompt_per_1k="0", price_completion_per_1k="0")


def test_a_flag_wins_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = tmp_path / ".env"
    env.write_text("MAX_LLM_CALLS=3\nSEED=3\nNUM_CTX=4096\n")
    monkeypatch.setenv("MAX_LLM_CALLS", "4")
    monkeypatch.setenv("SEED", "4")
    settings = load_settings(env, seed=5)
    assert (settings.num_ctx, settings.max_llm_calls, settings.seed) == (4096, 4, 5)


def test_a_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    env = tmp_path / ".env"
    env.write_bytes(b"\xff\xfeSEED=1")
    with pytest.raises(UsageError, match="cannot be read"):
        load_settings(env)


def test_a_key_never_stands_in_an_error_or_a_repr() -> None:
    settings = load_settings(NOWHERE, llm_api_key="sk-very-secret")
    assert "very-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("name", "value", "is_secret"),
    [
        ("DB_PASSWORD", "hunt", True),
        ("DB_PASSWORD", "hun", False),
        ("session_secret", "tea4", True),
        ("GITHUB_TOKEN", "abcdefgh", True),
        ("GITHUB_TOKEN", "abcdefg", False),
        ("SORT_KEY", "by-name", False),
        ("SORT_KEY_PASSWORD", "by-name", True),
        ("USE_PASSWORD", "True", False),
        ("DB_PASSWORD", "password", False),
        ("USER_NAME", "margarethe", False),
        ("DB_PASSWORD", "llama3.2:3b", False),  # the model's name, which is said aloud anyway
    ],
)
def test_secrets_of_other_programs_are_known_by_their_names(
    tmp_path: Path, name: str, value: str, *, is_secret: bool
) -> None:
    env = tmp_path / ".env"
    env.write_text(f"{name}={value}\n")
    assert (value in load_settings(env).secret_values()) == is_secret


def test_amounts_are_exact() -> None:
    assert microusd("0.20") == 200_000
    assert microusd("0.000001") == 1
    for bad in ("-1", "nan", "abc", "0.0000001"):
        with pytest.raises(UsageError):
            microusd(bad)
