"""The fast path's arithmetic by its values: each is worked out here on its own, in fractions, and never read from it.

What people, calculators and languages read in different ways must be left to the model, as must all that is algebra,
a unit, or written as another language writes it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from random import Random

import pytest

from agent.strategies.fast_arithmetic import arithmetic
from agent.tools.calculate_math import evaluate

RIGHT: list[tuple[str, Fraction]] = [
    # What is applied to one operand, which may be negative.
    ("square -5", Fraction(-5) ** 2),
    ("square 1.5", Fraction(3, 2) ** 2),
    ("cube -2", Fraction(-2) ** 3),
    ("double -3", Fraction(-3) * 2),
    ("triple -0.5", Fraction(-1, 2) * 3),
    ("halve -3", Fraction(-3) / 2),
    ("Raise -2 to the power of 4.", Fraction(-2) ** 4),
    ("Raise -2 to the power of 3.", Fraction(-2) ** 3),
    ("raise 2 to the power of -3", Fraction(2) ** -3),
    ("raise 0.5 to the power of 2", Fraction(1, 2) ** 2),
    ("2 to the power of -2", Fraction(2) ** -2),
    ("What is 2 to the power of 10?", Fraction(2) ** 10),
    ("What is (-5) squared?", Fraction(-5) ** 2),
    ("(-2) ** 4", Fraction(-2) ** 4),
    ("(2 - 5) squared", Fraction(2 - 5) ** 2),
    # What takes two.
    ("add -3 to 5", Fraction(5) + Fraction(-3)),
    ("add 5 and -8", Fraction(5) + Fraction(-8)),
    ("subtract -3 from 5", Fraction(5) - Fraction(-3)),
    ("subtract 5 from -3", Fraction(-3) - Fraction(5)),
    ("take 7 away from 4", Fraction(4) - Fraction(7)),
    ("deduct 0.25 from 1", Fraction(1) - Fraction(1, 4)),
    ("multiply -4 by -5", Fraction(-4) * Fraction(-5)),
    ("multiply 1,200 with 3", Fraction(1200) * 3),
    ("divide -7 by 2", Fraction(-7) / 2),
    ("divide 1 by -8", Fraction(1) / -8),
    ("the product of -2 and 3.5", Fraction(-2) * Fraction(7, 2)),
    ("the sum of -2 and -3", Fraction(-2) + Fraction(-3)),
    ("What is the sum of 0.1 and 0.2?", Fraction(1, 10) + Fraction(2, 10)),
    # Percentages.
    ("15% of -240", Fraction(15, 100) * -240),
    ("What is -15% of 240?", Fraction(-15, 100) * 240),
    ("12.5 percent of 80", Fraction(125, 1000) * 80),
    ("150% of 1,000", Fraction(150, 100) * 1000),
    ("0.5 % of 200", Fraction(5, 1000) * 200),
    # The order of operations.
    ("3 plus 4 times 5", Fraction(3 + 4 * 5)),
    ("20 minus 6 divided by 3", Fraction(20) - Fraction(6, 3)),
    ("3 squared plus 4 squared", Fraction(3**2 + 4**2)),
    ("2 times 5 squared", Fraction(2 * 5**2)),
    ("5 squared minus 1", Fraction(5**2 - 1)),
    ("100 divided by 5 squared", Fraction(100, 5**2)),
    ("10 minus 3 squared", Fraction(10 - 3**2)),
    ("100 / 10 / 2", Fraction(100) / 10 / 2),
    ("100 - 10 - 5", Fraction(100 - 10 - 5)),
    ("7 // 2", Fraction(7 // 2)),
    ("7 // 2 * 3", Fraction((7 // 2) * 3)),
    ("50 mod 7", Fraction(50 % 7)),
    ("(2 + 5) % 4", Fraction((2 + 5) % 4)),
    ("2 * (7 % 4)", Fraction(2 * (7 % 4))),
    ("2 * ((3 + 4) - (5 - 6))", Fraction(2 * ((3 + 4) - (5 - 6)))),
    ("5 times minus 3", Fraction(5 * -3)),
    ("5 - -3", Fraction(5 + 3)),
    ("-5 + 3 =", Fraction(-5 + 3)),
    ("-(2 + 3) * 2", Fraction(-(2 + 3) * 2)),
    ("5 minus 3 = ?", Fraction(2)),
    # Roots.
    ("the square root of 144", Fraction(12)),
    ("5 plus the square root of 16", Fraction(5 + 4)),
    ("the square root of (16 + 9)", Fraction(5)),
    ("the square root of (16) plus 9", Fraction(13)),
    ("sqrt(16) + 9", Fraction(13)),
    ("\u221a16 + 9", Fraction(13)),
    ("2 x sqrt(9)", Fraction(6)),
    # The letter x as a sign.
    ("What is 2x4?", Fraction(8)),
    ("calculate 2x4 + 3x5", Fraction(2 * 4 + 3 * 5)),
    ("3 x -4", Fraction(-12)),
    ("10 x 10 x 10", Fraction(1000)),
    ("2 x (3 + 4)", Fraction(14)),
    ("(1 + 2) x (3 + 4)", Fraction(21)),
    ("0 x 5", Fraction(0)),
    ("1.5 x .5", Fraction(3, 4)),
    # Numbers as English writes them.
    ("1,234,567 + 1", Fraction(1234568)),
    ("1,000.5 * 2", Fraction(2001)),
    ("0.5 * 4", Fraction(2)),
    (".5 * 4", Fraction(2)),
    ("1.500 + 2", Fraction(7, 2)),
]

LEFT_TO_THE_MODEL = [
    # Read in more ways than one.
    "-5 squared",
    "What is -2^2?",
    "-3 ** 2 + 1",
    "5 + -3 squared",
    "2^3^2",
    "2 squared cubed",
    "2 to the power of 3 squared",
    "2 to the power of 3 plus 1",
    "the square root of 16 plus 9",
    "the square root of 9 squared",
    "What is the square root of 4 divided by 2?",
    "sqrt 16 ** 2",
    "\u221a16 squared",
    "-7 mod 3",
    "7 % -3",
    "-7 // 2",
    "(3 - 10) % 4",
    "5 + 17 mod 5",
    "17 mod 5 * 2",
    "square 3 plus 1",
    "double 3 + 4",
    "multiply 2 by 3 + 4",
    "multiply 2 + 3 by 4",
    "the sum of 3 and 4 times 2",
    "15% of 80 plus 5",
    "100 - 10%",
    "6 / 2(1 + 2)",
    # Algebra, roman numbers, units.
    "What is 2x - 4?",
    "2x-4",
    "2 x - 4",
    "2x -4",
    "Evaluate 3x (2 + 1)",
    "3x(2+1)",
    "solve 3x + 4",
    "3x",
    "x times 4",
    "x4 + 2",
    "2 x4",
    "4 x y",
    "2x = 8",
    "a * 3",
    "XII + 3",
    "V * 2",
    "5 m * 3",
    "5m + 3m",
    "3 k * 2",
    "2 h 30 + 15",
    "5' + 3'",
    "90\u00b0 + 45\u00b0",
    "5\u00b2 + 1",
    "\u00bd + 1",
    "2(3)",
    "(2)(3)",
    "2 sqrt(9)",
    "5 3",
    "0x5 + 1",
    "1e5 x 3",
    # As others write numbers.
    "007 + 1",
    "00.5 + 1",
    "1,5 + 2",
    "12,34 * 2",
    "1,23,456 + 1",
    "1 000 + 5",
    "1.234.567 + 1",
    "1'000 + 1",
    "1_000 + 1",
    "half of -3",
    "a third of 9",
    "twice 5",
    "the cube root of 27",
    "three times four",
    "plus 5 times 2",
]

FOLLOW_UPS: list[tuple[str, Fraction | None]] = [
    ("square it", Fraction(-3) ** 2),
    ("it squared", Fraction(-3) ** 2),
    ("squared", Fraction(-3) ** 2),
    ("that cubed", Fraction(-3) ** 3),
    ("raise it to the power of 4", Fraction(-3) ** 4),
    ("raise that to the power of -2", Fraction(-3) ** -2),
    ("to the power of 4", Fraction(-3) ** 4),
    ("raise 2 to the power of that", Fraction(2) ** -3),
    ("double it", Fraction(-6)),
    ("halve it", Fraction(-3, 2)),
    ("subtract it from -5", Fraction(-5 + 3)),
    ("add -5", Fraction(-3 - 5)),
    ("multiply by -2", Fraction(6)),
    ("x 8", Fraction(-24)),
    ("it x 8", Fraction(-24)),
    ("* 8", Fraction(-24)),
    ("times 8", Fraction(-24)),
    ("divided by -2", Fraction(3, 2)),
    ("plus that", Fraction(-6)),
    ("10% of it", Fraction(-3, 10)),
    ("5 minus it", Fraction(8)),
    ("that * that", Fraction(9)),
    ("x - 5", None),
    ("x -5", Fraction(15)),
    ("x + 5", None),
    ("plus 5 times 2", None),
    ("times 2 plus 1", None),
    ("that mod 2", None),
    ("take the square root of that plus 2", None),
    ("it x - 2", None),
    ("multiply it by 2 and add 3", None),
    ("add 10% to it", None),
]


def value(message: str, previous: str | None = None) -> Fraction | None:
    """What the fast path comes to; None where it leaves the message alone."""
    expression = arithmetic(message, previous)
    return None if expression is None else Fraction(evaluate(expression))


def is_close(seen: Fraction | None, wanted: Fraction) -> bool:
    return seen is not None and math.isclose(seen, wanted, rel_tol=1e-12, abs_tol=1e-12)


@pytest.mark.parametrize(("message", "wanted"), RIGHT)
def test_the_value_is_the_right_one(message: str, wanted: Fraction) -> None:
    assert is_close(value(message), wanted)


@pytest.mark.parametrize("message", LEFT_TO_THE_MODEL)
def test_what_is_not_plain_is_left_to_the_model(message: str) -> None:
    assert value(message) is None


@pytest.mark.parametrize(("message", "wanted"), FOLLOW_UPS)
def test_a_follow_up_goes_on_from_a_negative_number(message: str, wanted: Fraction | None) -> None:
    seen = value(message, "-3")
    assert seen is None if wanted is None else is_close(seen, wanted)


# -- any expression ---------------------------------------------------------------------------------------------------

SIGNS = {
    "+": ["plus", "+"],
    "-": ["minus", "-", "\u2212"],
    "*": ["times", "multiplied by", "x", "*", "\u00d7", "\u00b7"],
    "/": ["divided by", "/", "\u00f7"],
}
MANNERS = ["What is {}?", "calculate {}", "{} =", "how much is {}", "Hi, could you please work out {} for me?"]


@dataclass(frozen=True)
class Part:
    """A piece of an expression in words, and what it is worth."""

    words: str
    worth: Fraction


class Speaker:
    """Makes up expressions and says them; what each is worth follows from how it was made."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def message(self) -> Part:
        sum_ = self._sum(depth=2)
        return Part(self._random.choice(MANNERS).format(sum_.words), sum_.worth)

    def _sum(self, depth: int) -> Part:
        """Terms with plus and minus between them, from left to right."""
        total = self._term(depth)
        for _ in range(self._random.randint(0, 2)):
            sign, term = self._random.choice("+-"), self._term(depth)
            worth = total.worth + term.worth if sign == "+" else total.worth - term.worth
            total = Part(f"{total.words} {self._random.choice(SIGNS[sign])} {term.words}", worth)
        return total

    def _term(self, depth: int) -> Part:
        """Factors with times and divided by between them, from left to right."""
        term = self._factor(depth)
        for _ in range(self._random.randint(0, 2)):
            sign, factor = self._random.choice("**/"), self._factor(depth)
            if sign == "/" and not factor.worth:
                continue
            worth = term.worth * factor.worth if sign == "*" else term.worth / factor.worth
            term = Part(f"{term.words} {self._random.choice(SIGNS[sign])} {factor.words}", worth)
        return term

    def _factor(self, depth: int) -> Part:
        kind = self._random.randint(0, 9)
        if kind == 0 and depth:
            inner = self._sum(depth - 1)
            return Part(f"({inner.words})", inner.worth)
        if kind == 1:
            base = self._number()
            return Part(f"{base.words} {self._random.choice(['squared', 'to the power of 2', '^ 2'])}", base.worth**2)
        if kind == 2:
            base = self._number()
            return Part(f"(-{base.words}) squared", base.worth**2)
        if kind == 3:
            root = self._random.randint(1, 20)
            form = self._random.choice(["sqrt({})", "\u221a{}", "the square root of {}", "the square root of ({})"])
            return Part(form.format(root * root), Fraction(root))
        if kind == 4:
            number = self._number()
            return Part(f"-{number.words}", -number.worth)
        return self._number()

    def _number(self) -> Part:
        kind, whole = self._random.randint(0, 3), self._random.randint(0, 99)
        if kind == 0:
            hundredths = self._random.randint(1, 99)
            return Part(f"{whole}.{hundredths:02}", Fraction(100 * whole + hundredths, 100))
        if kind == 1:
            thousands = self._random.randint(1000, 9_999_999)
            return Part(f"{thousands:,}", Fraction(thousands))
        return Part(str(whole), Fraction(whole))


def test_any_expression_comes_to_its_value_or_is_left_alone() -> None:
    speaker, answered = Speaker(7), 0
    for _ in range(5000):
        message = speaker.message()
        seen = value(message.words)
        if seen is not None:
            answered += 1
            assert is_close(seen, message.worth), message.words
    assert answered > 3000, "most of them are plain"
