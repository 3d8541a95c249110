"""The words of search queries: which carry no meaning, which stand for one another, and what is left of one as a stem.

The tables hold words that occur with any subject (attributes, quantities, deeds, units), not subjects themselves.
"""

from __future__ import annotations

import re
from functools import cache

# Words that ask for nothing by themselves.
_STOP = """
    a an the of in on at by for from with to into per and or as then than so if also only just very between during while
    is am are was were be been being do does did done has have had having can could would should will shall may might
    i me my we us our you your it its he she they them his her their this that these those there here
    what which who whom whose how when where why please tell find search look up give show see get know learn want need
    one some any about information info detail fact facts overview explain explained biography wikipedia online
"""
STOP = frozenset(_STOP.split())
NEGATIONS = frozenset({"not", "no", "without", "never", "non", "nor", "neither", "cannot", "except", "excluding"})
# What a question asks for, by its first word or by the word after "how".
ASKED_BY = {"when": "date", "where": "place", "why": "cause"}
ASKED_BY_HOW = {
    "many": "number",
    "much": "number",
    "tall": "height",
    "high": "height",
    "far": "distance",
    "long": "duration",
    "old": "age",
    "deep": "depth",
    "heavy": "weight",
    "hot": "temperature",
    "cold": "temperature",
    "warm": "temperature",
    "fast": "speed",
    "big": "size",
    "large": "size",
    "expensive": "price",
}
# Concepts that seldom change what is asked for.
_LIGHT = """
    number exact estimate now official name call city country world best easy good person list definition word process
"""

# Each line is one concept, named by its first word.
_CONCEPTS = """
    number count many much amount quantity total overall figure sum
    exact exactly precise precisely accurate accurately
    estimate approximate approximately roughly
    now current currently present presently today latest
    world earth global worldwide planet
    good well
    easy simple
    large big huge great major
    tall high
    fast quick rapid swift
    cheap affordable inexpensive
    rich wealthy
    near close
    old ancient
    start begin began commence onset
    end finish conclude
    cause reason
    result consequence
    disaster accident catastrophe
    effect impact influence
    fix repair mend
    remove eliminate
    stop prevent
    treat cure therapy remedy
    movie movies film
    car automobile auto
    bicycle bike
    eat diet food feed
    child kid children
    teenager teen adolescent
    salary pay wage income earnings
    worker employee staff personnel
    job occupation profession
    price cost expense fee
    average mean typical
    duration length long
    lifespan longevity
    height elevation altitude
    speed velocity
    size area surface
    weight weigh mass
    temperature
    birth born birthday birthdate
    death die died dead
    place location site situated whereabouts
    date year day
    spouse husband wife married
    write wrote written author
    paint artist
    build built construct
    design architect
    invent found establish create originate
    make made manufacture
    lead head chief executive ceo boss run
    own owner
    neighbour neighbor border adjacent
    population inhabitant resident
    live residence reside habitat inhabit
    symptom sign
    purpose goal aim objective
    benefit advantage
    drawback disadvantage downside
    definition meaning define
    method technique way approach
    formula equation
    guide tutorial instruction
    picture image photo photograph
    annual annually yearly
    currency money
    language speak spoken
    house home household
    company firm corporation business
    revenue sale turnover
    illness disease sickness
    medicine drug medication
    doctor dr physician
    lawyer attorney
    maximum max top
    minimum min
    kilometer kilometre km
    meter metre
    liter litre
    kilogram kg
    gram gramme
    mile mi
    color colour
    theater theatre
    center centre
    aluminum aluminium
    fiber fibre
    versus vs compare comparison difference
"""
# What excludes one another. Each line is one choice, its sides parted by "/"; a query that names one side alone never
# repeats one that names another side alone, however alike they are.
_CHOICES = """
    hot warm warmest hottest heating / cold cool coldest cooling
    high highest tall tallest / low lowest / short shortest
    deep / shallow
    long longest / short shortest
    large largest big biggest great huge / small smallest little tiny
    fast fastest quick / slow slowest
    cheap cheapest affordable inexpensive / expensive
    rich richest wealthy / poor poorest
    near nearest close closest / far farthest
    easy simple / hard difficult
    good best better well / bad worst worse
    strong / weak
    heavy / light
    old oldest older ancient / young youngest younger / new newest newer modern
    early earliest / late latest
    common / rare
    public / private
    start begin began beginning commence onset / end ending finish conclude
    first / last
    previous / next
    past / present current currently now / future
    yesterday / today / tomorrow
    morning / noon / evening / midnight
    summer / winter / autumn
    maximum max most top / minimum min least bottom / average mean
    increase rise growth / decrease fall decline drop
    profit / loss
    income / expense
    win won winner victory / lose lost loser defeat
    buy bought purchase / sell sold / rent
    import / export
    lend / borrow
    send / receive
    arrival arrive / departure depart
    upload / download
    upper / lower / middle
    inner internal interior / outer external exterior
    inside indoor / outside outdoor
    above over / below under
    before / after
    birth born birthday birthdate birthplace / death die died dead
    build built construct / destroy demolish
    create found founded establish / abolish dissolve
    add / remove eliminate
    enable / disable
    allow / forbid prohibit / prevent
    cause reason / effect impact influence result consequence
    benefit advantage pro / drawback disadvantage downside con risk
    positive / negative
    legal / illegal
    male man men boy / female woman women girl
    husband / wife
    father / mother
    son / daughter
    brother / sister
    king / queen
    employer / employee
    interviewer / interviewee
    trainer / trainee
    teacher / student pupil
    parent / child
    predator / prey
    supply / demand
    boiling / freezing / melting
    acid / base alkali
    north northern / south southern / east eastern / west western
    left / right
    monday / tuesday / wednesday / thursday / friday / saturday / sunday
    minute minutes / hour hours / day days / week weeks / month months / year years / decade / century
    by / about
    to / from
"""
# Beginnings that turn a word into its opposite though it looks misspelt.
_TURNING = (("macro", "micro"), ("ab", "ad"), ("pre", "pro"))
# From two on: "one liter" and "a liter" are the same.
_COUNTING = """
    two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
    nineteen twenty
"""
_NUMBERS = {word: str(number) for number, word in enumerate(_COUNTING.split(), 2)}
_NUMBERS |= {"second": "2", "third": "3", "fourth": "4", "fifth": "5", "ii": "2", "iii": "3", "iv": "4", "vi": "6"}
_PHRASES = [
    (re.compile(r"\b(?:U\.S\.A?\.?|USA|US|[Uu]nited [Ss]tates(?: of [Aa]merica)?)(?!\w)"), " usa "),
    (re.compile(r"\b(?:U\.K\.|UK|[Uu]nited [Kk]ingdom)(?!\w)"), " uk "),
    (re.compile(r"\bw(?:orld )?w(?:ar)? ?(?:ii|2)\b", re.IGNORECASE), " world war 2 "),
    (re.compile(r"\bw(?:orld )?w(?:ar)? ?(?:i|1)\b", re.IGNORECASE), " world war 1 "),
    (re.compile(r"\be-mail", re.IGNORECASE), "email"),
    (re.compile(r"\b(?:come|came) up with\b", re.IGNORECASE), "invent"),
    (re.compile(r"\bget rid of\b", re.IGNORECASE), "remove"),
    (re.compile(r"(\w)n['\u2019]t\b"), r"\1 not"),
    (re.compile(r"['\u2019]s?(?!\w)"), ""),
]

# With each ending, how many letters must be left of a word.
_ENDINGS = (("ment", 5), ("ing", 3), ("ion", 5), ("est", 3), ("ed", 3))
_DOERS = (("er", 4), ("or", 4))
_VOWEL = re.compile("[aeiouy]")


def one_form(text: str) -> str:
    """The text with names of many forms (USA, World War II) in one, and without apostrophes."""
    for pattern, form in _PHRASES:
        text = pattern.sub(form, text)
    return text


def number_of(word: str) -> str | None:
    """The digits that a lower-case word stands for ("third", "iii", "1,000"), or None where it is no number."""
    if word[0].isdigit():
        return word.replace(",", "")
    return _NUMBERS.get(word)


@cache
def _named() -> dict[str, str]:
    """Every word of the tables, and its stem, with the name of its concept. A word itself goes before a stem."""
    lines = [line.split() for line in _CONCEPTS.strip().split("\n")]
    stems = {stem(word): words[0] for words in lines for word in words}
    return stems | {word: words[0] for words in lines for word in words}


def concept(word: str) -> str:
    """What a lower-case word stands for: the name of its concept, or the word's stem where it is in no table."""
    stemmed = stem(word)
    return _named().get(word) or _named().get(stemmed, stemmed)


@cache
def _choices() -> dict[str, frozenset[tuple[int, int]]]:
    """Every word of the choices, and its stem, with the choices that it makes: the number of the line and the side."""
    made: dict[str, set[tuple[int, int]]] = {}
    for line, text in enumerate(_CHOICES.strip().split("\n")):
        for side, words in enumerate(text.split("/")):
            for word in words.split():
                made.setdefault(word, set()).add((line, side))
    stems = {stem(word): frozenset(sides) for word, sides in made.items()}
    return stems | {word: frozenset(sides) for word, sides in made.items()}


def choices_of(word: str) -> frozenset[tuple[int, int]]:
    """Between which things that exclude one another a lower-case word chooses, and which of them it takes."""
    return _choices().get(word) or _choices().get(stem(word), frozenset())


def turned(a: str, b: str) -> bool:
    """Whether two words differ in a beginning that turns the meaning round."""
    pairs = (pair for one, other in _TURNING for pair in ((one, other), (other, one)))
    return any(a.startswith(x) and b.startswith(y) and a[len(x) :] == b[len(y) :] for x, y in pairs)


def is_light(name: str) -> bool:
    """Whether a concept seldom changes what a query asks for."""
    return name in _light()


@cache
def _light() -> frozenset[str]:
    return frozenset(concept(word) for word in _LIGHT.split())


def stem(word: str) -> str:
    """What the forms of a lower-case word have in common (number, tense, degree, who does it); seldom itself a word."""
    word = _without_last_vowel(_singular(word))
    word = _without_ending(_without_ending(word, _ENDINGS).replace("erer", "er"), _DOERS)
    if word.endswith("at") and len(word) > 5:  # migrate, migration
        word = word[:-2]
    return word[:-1] + "z" if word.endswith("is") and len(word) > 5 else word  # organise, organize


def _singular(word: str) -> str:
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 3 else word


def _without_ending(word: str, endings: tuple[tuple[str, int], ...]) -> str:
    for ending, least in endings:
        rest = word.removesuffix(ending)
        if rest != word and len(rest) >= least and _VOWEL.search(rest) and not word.endswith("eed"):
            doubled = rest[-1] == rest[-2] and rest[-1] not in "aeiouls"  # stopped, but filled, passed
            return rest[:-1] if doubled else _without_last_vowel(rest)
    return word


def _without_last_vowel(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] in "eiy" else word
