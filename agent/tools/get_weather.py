"""get_weather: what wttr.in, or a server that answers like it, says of a place."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

from pydantic import BaseModel, Field, StringConstraints, ValidationError

from agent.egress.faults import FetchError
from agent.egress.fetch import Page, Wanted, fetch
from agent.redaction import redacted_values
from agent.tools.base import Params, Tool, ToolContext, ToolError
from agent.tools.corpus import clean
from agent.tools.fetching import reach_of

MAX_LOCATION_CHARS = 80
MAX_DAYS = 3
# wttr.in looks the place up and asks a weather service, which takes it some seconds.
_WANTED = Wanted(accept=("application/json", "text/plain"), deadline_seconds=12.0, same_origin=True)
_MAX_WORD = 60

# Everything in the answer is text of somebody else's; a number is one that looks like it.
Number = Annotated[str, StringConstraints(pattern=r"^-?[0-9]{1,4}$")]


class GetWeatherParams(Params):
    """What get_weather takes."""

    location: str = Field(
        min_length=1, max_length=MAX_LOCATION_CHARS, description="The name of a place, with its country where needed."
    )


class _Words(BaseModel):
    value: str = ""


class _Now(BaseModel):
    temp_C: Number  # noqa: N815  the server's own names, here and below
    temp_F: Number  # noqa: N815
    humidity: Number
    windspeedKmph: Number  # noqa: N815
    winddir16Point: str = ""  # noqa: N815
    weatherDesc: list[_Words] = []  # noqa: N815


class _Hour(BaseModel):
    weatherDesc: list[_Words] = []  # noqa: N815


class _Day(BaseModel):
    date: str
    mintempC: Number  # noqa: N815
    maxtempC: Number  # noqa: N815
    mintempF: Number  # noqa: N815
    maxtempF: Number  # noqa: N815
    hourly: list[_Hour] = []


class _Place(BaseModel):
    areaName: list[_Words] = []  # noqa: N815
    region: list[_Words] = []
    country: list[_Words] = []


class _Weather(BaseModel):
    current_condition: list[_Now] = Field(min_length=1)
    nearest_area: list[_Place] = []
    weather: list[_Day] = []


class GetWeather(Tool[GetWeatherParams]):
    """One line of where and how it is now, and one for each of three days."""

    name = "get_weather"
    description = "Tells the weather of a place: now, and the forecast of three days."
    effect = "network"
    max_chars = 1000
    keywords = (
        *("weather", "forecast", "temperature in", "temperature outside", "how warm is it", "how cold is it"),
        *("will it rain", "raining", "will it snow", "snowing", "sunny", "humidity", "windy", "umbrella"),
    )
    params = GetWeatherParams

    def run(self, params: GetWeatherParams, context: ToolContext) -> str:
        """The weather in words.

        Raises:
            ToolError: bad_args, not_found, bad_reply, or what kept the server from being asked.
            UsageError: WEATHER_BASE_URL is no address.
        """
        if not any(char.isalnum() for char in params.location):
            raise ToolError("bad_args", "The location holds no name.")
        page = _asked(params.location, context)
        try:
            weather = _Weather.model_validate_json(page.body)
            clean = _Weather.model_validate(redacted_values(weather.model_dump(), context.secrets))
            return _told(clean, params.location)
        except ValidationError:
            raise ToolError("bad_reply", "The weather server's answer cannot be read. Try another name.") from None


def _asked(location: str, context: ToolContext) -> Page:
    """The server's answer for a place, whose name is one segment of the path whatever is in it."""
    base = context.web.weather_url.rstrip("/")
    reach = reach_of("WEATHER_BASE_URL", base, context)
    try:
        return fetch(f"{base}/{quote(location, safe='')}?format=j1", _WANTED, reach)
    except FetchError as error:
        if error.status == 404:
            raise ToolError("not_found", "No such place is known. Give another name, or its country too.") from None
        raise ToolError(error.error_type, str(error)) from None


def _told(weather: _Weather, asked: str) -> str:
    now = weather.current_condition[0]
    lines = [
        f"{_place(weather, asked)}: now {now.temp_C}\N{DEGREE SIGN}C ({now.temp_F}\N{DEGREE SIGN}F), "
        f"{_first(now.weatherDesc) or 'no description'}, humidity {now.humidity}%, "
        f"wind {now.windspeedKmph} km/h {_word(now.winddir16Point)}".rstrip()
    ]
    return "\n".join(lines + [_day(day) for day in weather.weather[:MAX_DAYS]])


def _place(weather: _Weather, asked: str) -> str:
    """Where the server took it to be, for there are several places of most names."""
    nearest = weather.nearest_area[:1]
    names = [_first(words) for place in nearest for words in (place.areaName, place.region, place.country)]
    return ", ".join(dict.fromkeys(name for name in names if name)) or _word(asked)


def _day(day: _Day) -> str:
    noon = day.hourly[len(day.hourly) // 2 :][:1]
    sky = "".join(f", {words}" for hour in noon if (words := _first(hour.weatherDesc)))
    return (
        f"{_word(day.date)}: {day.mintempC} to {day.maxtempC}\N{DEGREE SIGN}C "
        f"({day.mintempF} to {day.maxtempF}\N{DEGREE SIGN}F){sky}"
    )


def _first(words: list[_Words]) -> str:
    return _word(words[0].value) if words else ""


def _word(text: str) -> str:
    return clean(text[: 4 * _MAX_WORD])[:_MAX_WORD]
