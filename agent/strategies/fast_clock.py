"""Messages that ask for the time or the day and for nothing else, read without a model into the arguments of clock.

A positive match of the whole message. A place counts where its name says one zone to everybody; the others are left to
the model.
"""

from __future__ import annotations

import re

MAX_CHARS = 120  # of a message that may be a question for the clock

# Cities that the zone database names, and that no better known place shares its name with.
_ZONES = (
    *("Africa/Cairo", "Africa/Casablanca", "Africa/Johannesburg", "Africa/Lagos", "Africa/Nairobi"),
    *("America/Bogota", "America/Chicago", "America/Denver", "America/Lima", "America/Los_Angeles"),
    *("America/Mexico_City", "America/New_York", "America/Sao_Paulo", "America/Toronto", "America/Vancouver"),
    *("Asia/Bangkok", "Asia/Dhaka", "Asia/Dubai", "Asia/Hong_Kong", "Asia/Jakarta", "Asia/Karachi", "Asia/Kathmandu"),
    *("Asia/Kolkata", "Asia/Manila", "Asia/Seoul", "Asia/Shanghai", "Asia/Singapore", "Asia/Taipei", "Asia/Tehran"),
    *("Asia/Tokyo", "Atlantic/Reykjavik", "Australia/Adelaide", "Australia/Brisbane", "Australia/Sydney"),
    *("Europe/Amsterdam", "Europe/Athens", "Europe/Berlin", "Europe/Brussels", "Europe/Budapest"),
    *("Europe/Copenhagen", "Europe/Helsinki", "Europe/Istanbul", "Europe/Lisbon", "Europe/London", "Europe/Madrid"),
    *("Europe/Moscow", "Europe/Oslo", "Europe/Paris", "Europe/Prague", "Europe/Rome", "Europe/Stockholm"),
    *("Europe/Vienna", "Europe/Warsaw", "Europe/Zurich", "Pacific/Auckland", "Pacific/Honolulu"),
)
# Zones without a city, and countries with one zone.
_OTHERS = {
    "gmt": "UTC",
    "utc": "UTC",
    "china": "Asia/Shanghai",
    "egypt": "Africa/Cairo",
    "germany": "Europe/Berlin",
    "india": "Asia/Kolkata",
    "italy": "Europe/Rome",
    "japan": "Asia/Tokyo",
    "kenya": "Africa/Nairobi",
    "nepal": "Asia/Kathmandu",
    "nigeria": "Africa/Lagos",
    "pakistan": "Asia/Karachi",
    "poland": "Europe/Warsaw",
    "south korea": "Asia/Seoul",
    "sweden": "Europe/Stockholm",
    "thailand": "Asia/Bangkok",
}
PLACES = _OTHERS | {zone.rpartition("/")[2].replace("_", " ").casefold(): zone for zone in _ZONES}

_POLITE = (
    r"(?:(?:hi|hello|hey|please|okay|ok|so|now|and|thanks|also|excuse me|(?:can|could|would) you|do you know"
    r"|(?:tell|give|show) me)(?:[,.:!]+ ?| ))*"
)
_TIME = (
    r"(?:what time (?:is it|it is)|(?:what is|what's|whats|tell me|give me) the (?:current |exact |local )?time"
    r"|(?:the )?(?:current|local) time|(?:the )?time(?= in ))"
)
_DAY = (
    r"(?:(?:what|which) (?:day|date|weekday)(?: of the week)? (?:is (?:it|today)|it is|do we have)"
    r"|(?:what is|what's|whats) (?:today's|todays|the|the current) (?:date|day)|(?:today's|the current|current) date)"
)
_NOW = r"(?: (?:now|right now|today|at the moment|currently))?"
_QUESTION = re.compile(
    rf"{_POLITE}(?:{_TIME}|{_DAY}){_NOW}(?: in (?P<place>[a-z ]{{1,40}}?))?{_NOW}(?:,? please)?[?.!]*"
)


def clock_arguments(message: str) -> dict[str, str] | None:
    """What to call clock with for a message that asks for the time or the day; None where it is anything else."""
    if len(message) > MAX_CHARS:
        return None
    question = _QUESTION.fullmatch(" ".join(message.replace("\u2019", "'").casefold().split()))
    if question is None:
        return None
    place = question["place"]
    if place is None:
        return {}
    zone = PLACES.get(place)
    return None if zone is None else {"timezone": zone}
