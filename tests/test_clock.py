"""clock: one exact text for one fixed time, in the zone that was asked for and in no other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

from agent.errors import UsageError
from agent.state import ToolCall, ToolResult
from agent.tools.base import ToolContext
from agent.tools.clock import Clock, find_zone
from agent.tools.registry import ToolRegistry

FIXED = datetime(2026, 3, 14, 9, 26, 53, 589_793, tzinfo=UTC)


def ask(now: datetime | None = FIXED, **arguments: str | None) -> ToolResult:
    return ToolRegistry([Clock()], ToolContext(now=now)).execute(ToolCall(name="clock", arguments=arguments))


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        ("UTC", "2026-03-14T09:26:53+00:00 (Saturday, 14 March 2026, 09:26, UTC)"),
        ("z", "2026-03-14T09:26:53+00:00 (Saturday, 14 March 2026, 09:26, UTC)"),
        ("+00:00", "2026-03-14T09:26:53+00:00 (Saturday, 14 March 2026, 09:26, UTC)"),
        ("+02:00", "2026-03-14T11:26:53+02:00 (Saturday, 14 March 2026, 11:26, UTC+02:00)"),
        ("+2", "2026-03-14T11:26:53+02:00 (Saturday, 14 March 2026, 11:26, UTC+02:00)"),
        ("utc+0545", "2026-03-14T15:11:53+05:45 (Saturday, 14 March 2026, 15:11, UTC+05:45)"),
        ("GMT -9:30", "2026-03-13T23:56:53-09:30 (Friday, 13 March 2026, 23:56, UTC-09:30)"),
        ("Asia/Tokyo", "2026-03-14T18:26:53+09:00 (Saturday, 14 March 2026, 18:26, Asia/Tokyo)"),
        ("america/new york", "2026-03-14T05:26:53-04:00 (Saturday, 14 March 2026, 05:26, America/New_York)"),
        ("Pago Pago", "2026-03-13T22:26:53-11:00 (Friday, 13 March 2026, 22:26, Pacific/Pago_Pago)"),
    ],
)
def test_the_time_in_the_zone_asked_for(zone: str, text: str) -> None:
    result = ask(timezone=zone)
    assert (result.success, result.data) == (True, text)


@pytest.mark.parametrize(
    ("zone", "text"),
    [
        (ZoneInfo("Europe/Lisbon"), "2026-07-01T12:00:00+01:00 (Wednesday, 1 July 2026, 12:00, Europe/Lisbon)"),
        (timezone(timedelta(hours=-3)), "2026-07-01T12:00:00-03:00 (Wednesday, 1 July 2026, 12:00, UTC-03:00)"),
    ],
)
@pytest.mark.parametrize("arguments", [{}, {"timezone": None}, {"timezone": " "}])
def test_without_a_zone_it_is_that_of_the_fixed_time(zone: tzinfo, text: str, arguments: dict[str, str | None]) -> None:
    assert ask(datetime(2026, 7, 1, 12, tzinfo=zone), **arguments).data == text


def test_without_a_fixed_time_it_is_now_in_utc() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    told = ask(None).data
    assert before <= datetime.fromisoformat(told.split()[0]) <= datetime.now(UTC)
    assert told.endswith(", UTC)")


@pytest.mark.parametrize(
    ("zone", "near"),
    [
        ("Asia/Tokio", "Asia/Tokyo"),
        ("Sidney", "Australia/Sydney"),
        ("Europe/Lissbon", "Europe/Lisbon"),
        ("louisville", "America/Louisville"),  # two zones end so: neither is taken on a guess
    ],
)
def test_an_unknown_zone_is_told_with_the_nearest(zone: str, near: str) -> None:
    result = ask(timezone=zone)
    assert (result.success, result.error_type) == (False, "not_found")
    assert near in (result.error or "")


@pytest.mark.parametrize(
    "zone",
    ["../../../etc/passwd", "/etc/localtime", "localtime", "America", "+99:00", "+14:01", "\x1b[2J", "%s", "\u0661"],
)
def test_what_is_no_zone_is_neither_opened_nor_echoed(zone: str) -> None:
    result = ask(timezone=zone)
    assert (result.success, result.error_type) == (False, "not_found")
    assert zone not in (result.error or "").replace("America/", "")


def test_every_zone_is_found_under_its_own_name() -> None:
    for name in ("Europe/Paris", "Asia/Kathmandu", "America/Argentina/Ushuaia", "EST", "Japan"):
        assert find_zone(name) == ZoneInfo(name)


def test_a_time_at_the_end_of_the_calendar_is_the_persons_mistake() -> None:
    with pytest.raises(UsageError, match="now: 9999-12-31T23:00:00"):
        ask(datetime(9999, 12, 31, 23, tzinfo=UTC), timezone="+02:00")


def test_a_time_without_a_zone_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="needs its zone"):
        ToolContext(now=FIXED.replace(tzinfo=None))
