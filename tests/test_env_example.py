"""`.env.example` documents every setting, and says the truth about each default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.config import EMBEDDED_MODEL, Settings, load_settings

ROOT = Path(__file__).resolve().parent.parent
LINES = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
SETTING = re.compile(r"# ([A-Z][A-Z0-9_]*)=(.*)")
DOCUMENTED = {match[1]: match[2] for line in LINES if (match := SETTING.fullmatch(line))}


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No setting in the environment, no .env in the working folder."""
    for name in Settings.model_fields:
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_setting_is_documented_and_nothing_else() -> None:
    assert set(DOCUMENTED) == {name.upper() for name in Settings.model_fields}


def test_no_line_is_active() -> None:
    assert [line for line in LINES if line and not line.startswith("#")] == []


def test_every_setting_has_a_line_of_meaning_above_it() -> None:
    for above, line in zip(["", *LINES], LINES, strict=False):
        if SETTING.fullmatch(line):
            assert re.fullmatch(r"# [A-Za-z].*[.]", above), f"no sentence above {line!r}"


def test_the_documented_values_are_the_defaults(bare: Path) -> None:
    uncommented = bare / "all.env"
    uncommented.write_text("".join(f"{name}={value}\n" for name, value in DOCUMENTED.items()), encoding="utf-8")
    documented = load_settings(uncommented).model_dump()
    default = load_settings(bare / "absent.env").model_dump()
    documented["embedded_model"] = ROOT / documented["embedded_model"]
    assert default["embedded_model"] == EMBEDDED_MODEL
    assert documented == default
