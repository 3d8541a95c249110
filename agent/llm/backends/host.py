"""Where a server is: every form of OLLAMA_HOST that Ollama itself understands, and the address of a /v1 server."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from agent.errors import UsageError

OLLAMA_PORT = 11434
_PORTS = {"http": 80, "https": 443}
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  # what servers bind to, mapped to what clients call


def ollama_url(value: str) -> str:
    """OLLAMA_HOST as the address to call: `scheme://host:port` and a path where one is given.

    Without a scheme it is http on port 11434; with one, that scheme's own port. A port that is none is replaced by
    the default, and an address that means "all interfaces" by loopback.

    Raises:
        UsageError: there is a scheme other than http and https.
    """
    text = value.strip().strip("\"'").strip()
    scheme, separator, rest = text.rpartition("://")
    scheme = scheme.lower() if separator else "http"
    if scheme not in _PORTS:
        raise UsageError(
            f"OLLAMA_HOST: {text!r} has a scheme other than http and https; write it like http://host:11434"
        )
    authority, slash, path = rest.partition("/")
    host, port = _host_and_port(authority.rpartition("@")[2], _PORTS[scheme] if separator else OLLAMA_PORT)
    host = _EVERYWHERE.get(host, host)
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}{(slash + path).rstrip('/')}"


def _host_and_port(authority: str, default: int) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[(?P<six>[^\]]*)\]|(?P<name>[^:]*))(?::(?P<port>[^:]*))?", authority)
    if found is None:  # an IPv6 address without brackets
        return authority.strip("[]"), default
    host = found["six"] or found["name"] or "127.0.0.1"
    digits = found["port"] or ""
    is_port = digits.isascii() and digits.isdigit() and len(digits) <= 5 and int(digits) <= 65535
    return host, int(digits) if is_port else default


def v1_url(value: str, settings: str = "LLM") -> str:
    """LLM_BASE_URL (EMBEDDING_BASE_URL) as the address that `/v1/...` is put after, with or without `/v1` at its end.

    `settings` is what the settings' names begin with, for the messages.

    Raises:
        UsageError: it is no http(s) address, or holds a password.
    """
    text = value.strip().strip("\"'").strip()
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises where it is no port
    except ValueError as error:
        raise UsageError(
            f"{settings}_BASE_URL: not an address ({error}); write it like http://127.0.0.1:8080/v1"
        ) from None
    if parts.scheme not in _PORTS or not parts.hostname:
        raise UsageError(f"{settings}_BASE_URL: not an http(s) address; write it like http://127.0.0.1:8080/v1")
    if "@" in parts.netloc:
        raise UsageError(f"{settings}_BASE_URL holds a password; put the key into {settings}_API_KEY instead")
    if parts.query or parts.fragment:
        raise UsageError(f"{settings}_BASE_URL has a query or a fragment; write it like http://127.0.0.1:8080/v1")
    return text.rstrip("/").removesuffix("/v1")
