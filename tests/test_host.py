"""Every form of OLLAMA_HOST that Ollama understands, and of LLM_BASE_URL."""

# ruff: noqa: S104  # nothing is bound here: these are the addresses that people write

from __future__ import annotations

import pytest

from agent.errors import UsageError
from agent.llm.backends.host import ollama_url, v1_url


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("1.2.3.4", "http://1.2.3.4:11434"),
        ("1.2.3.4:1234", "http://1.2.3.4:1234"),
        (":5000", "http://127.0.0.1:5000"),
        ("example.com", "http://example.com:11434"),
        ("example.com:1234", "http://example.com:1234"),
        ("http://example.com", "http://example.com:80"),
        ("https://example.com", "https://example.com:443"),
        ("HTTP://example.com", "http://example.com:80"),
        ("https://example.com:1234", "https://example.com:1234"),
        ("example.com/", "http://example.com:11434"),
        ("example.com/ollama", "http://example.com:11434/ollama"),
        ("https://example.com/a/b/", "https://example.com:443/a/b"),
        ("example.com:1234/ollama", "http://example.com:1234/ollama"),
        (" 1.2.3.4 ", "http://1.2.3.4:11434"),
        ('"1.2.3.4"', "http://1.2.3.4:11434"),
        ("'http://1.2.3.4:9'", "http://1.2.3.4:9"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:11500", "http://127.0.0.1:11500"),
        ("http://0.0.0.0", "http://127.0.0.1:80"),
        ("[::]", "http://[::1]:11434"),
        ("[::]:5000", "http://[::1]:5000"),
        ("::", "http://[::1]:11434"),
        ("::1", "http://[::1]:11434"),
        ("[::1]", "http://[::1]:11434"),
        ("[::1]:5000", "http://[::1]:5000"),
        ("[0001:002:003:0004::1]:1337", "http://[0001:002:003:0004::1]:1337"),
        ("1.2.3.4:66000", "http://1.2.3.4:11434"),
        ("1.2.3.4:-1", "http://1.2.3.4:11434"),
        ("1.2.3.4:port", "http://1.2.3.4:11434"),
        ("1.2.3.4:", "http://1.2.3.4:11434"),
        ("http://example.com:66000", "http://example.com:80"),
        ("https://example.com:-1", "https://example.com:443"),
        ("host.docker.internal:11434", "http://host.docker.internal:11434"),
    ],
)
def test_ollama_host(value: str, url: str) -> None:
    assert ollama_url(value) == url


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(UsageError, match=r"OLLAMA_HOST.*http://host:11434"):
        ollama_url("tcp://1.2.3.4")


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1/", "http://127.0.0.1:8080"),
        ("https://example.com/api/v1", "https://example.com/api"),
        ("localhost:8000", "http://localhost:8000"),
        (' "http://[::1]:1/v1" ', "http://[::1]:1"),
    ],
)
def test_base_url(value: str, url: str) -> None:
    assert v1_url(value) == url


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ftp://a",
        "http://",
        "http://a:port",
        "http://a:99999",
        "http://u:hush@a/v1",
        "http://a/v1?k=hush",
        "http://[::1",
    ],
)
def test_a_base_url_that_is_none_is_refused_without_showing_a_password(value: str) -> None:
    with pytest.raises(UsageError, match="LLM_BASE_URL") as caught:
        v1_url(value)
    assert "hush" not in str(caught.value)
