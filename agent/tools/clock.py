"""clock: the time of the case where it fixes one, else the machine's, in the zone that was asked for."""

from __future__ import annotations

import difflib
import functools
import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from pydantic import Field

from agent.errors import UsageError
from agent.tools.base import Params, Tool, ToolContext, ToolError

MAX_ZONE_CHARS = 64
_MAX_OFFSET = timedelta(hours=14)
_MAX_SUGGESTED = 3

# Not strftime's: that follows the machine's language.
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_UTC_NAMES = frozenset({"utc", "gmt", "z"})
_OFFSET = re.compile(r"(?:utc|gmt)? ?([+-])([0-9]{1,2})(?::?([0-5][0-9]))?")
# Entries of the zone database that are files of a machine rather than places.
_NO_PLACES = frozenset({"localtime", "Factory", "posixrules"})


class ClockParams(Params):
    """What clock takes."""

    timezone: str | None = Field(
        None,
        max_length=MAX_ZONE_CHARS,
        description="The name of a zone in the IANA database, or an offset from UTC in hours and minutes. "
        "Leave it out where the task names no zone.",
    )


class Clock(Tool[ClockParams]):
    """Where no zone is asked for, it is that of the case's fixed time, else UTC: never the machine's own, or the same
    run would say something else on another machine. The zone stands in the text."""

    name = "clock"
    description = "Tells the current date, weekday and time."
    effect = "read"
    self_timed = True  # a look into a table that is bounded by the length of the name
    keywords = (
        *("what time", "time is it", "the time in", "current time", "local time", "time now", "clock"),
        *("what day", "what date", "today's date", "date today", "current date", "which weekday", "day of the week"),
    )
    params = ClockParams

    def run(self, params: ClockParams, context: ToolContext) -> str:
        """The time as ISO 8601 to the second, then in words.

        Raises:
            ToolError: not_found, the zone is not known.
            UsageError: the case's fixed time has no counterpart in that zone (the calendar ends).
        """
        now = context.now or datetime.now(UTC)
        asked = (params.timezone or "").strip()
        zone = find_zone(asked) if asked else now.tzinfo
        try:
            moment = now.astimezone(zone)
        except OverflowError:
            raise UsageError(f"now: {now.isoformat()} is too near the end of the calendar: use another year") from None
        words = f"{_DAYS[moment.weekday()]}, {moment.day} {_MONTHS[moment.month - 1]} {moment.year}"
        return f"{moment.isoformat(timespec='seconds')} ({words}, {moment:%H:%M}, {_zone_words(moment)})"


def find_zone(text: str) -> tzinfo:
    """The zone of an IANA name (in any case, blanks for underscores), of the last part of one where only one ends so,
    or of an offset from UTC.

    Raises:
        ToolError: not_found, with the nearest names.
    """
    key = text.strip().replace(" ", "_").casefold()
    if key in _UTC_NAMES:
        return UTC
    offset = _OFFSET.fullmatch(text.strip().lower())
    if offset is not None and (zone := _fixed(*offset.groups())) is not None:
        return zone
    names, by_last_part = _zone_names()
    name = names.get(key) or by_last_part.get(key)
    if name is None:
        raise ToolError("not_found", _unknown(key))
    return ZoneInfo(name)


def _fixed(sign: str, hours: str, minutes: str | None) -> tzinfo | None:
    offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
    if offset > _MAX_OFFSET:
        return None
    return timezone(-offset if sign == "-" else offset) if offset else UTC


@functools.lru_cache(maxsize=1)
def _zone_names() -> tuple[dict[str, str], dict[str, str]]:
    """The names of all zones by their lower case, and of those whose last part no other has, by that."""
    names = {name.casefold(): name for name in sorted(available_timezones() - _NO_PLACES)}
    by_last_part: dict[str, list[str]] = {}
    for key, name in names.items():
        by_last_part.setdefault(key.rpartition("/")[2], []).append(name)
    return names, {key: found[0] for key, found in by_last_part.items() if len(found) == 1}


def _unknown(key: str) -> str:
    names, by_last_part = _zone_names()
    last = key.rpartition("/")[2]
    near = [by_last_part[found] for found in difflib.get_close_matches(last, by_last_part, n=_MAX_SUGGESTED)]
    near += [names[found] for found in difflib.get_close_matches(key, names, n=_MAX_SUGGESTED)]
    hint = f" Near it are: {', '.join(list(dict.fromkeys(near))[:_MAX_SUGGESTED])}." if near else ""
    return f"That time zone is not known.{hint} Give the name of a zone as region/city, or an offset as +hours:minutes."


def _zone_words(moment: datetime) -> str:
    if isinstance(moment.tzinfo, ZoneInfo):
        return moment.tzinfo.key
    return "UTC" if not moment.utcoffset() else f"UTC{moment.isoformat()[-6:]}"
