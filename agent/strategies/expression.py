"""Arithmetic in signs, written out in the one form in which it is given to calculate_math. Pure.

What is read differently by people, by calculators and by languages is refused: -5 ** 2, 2 ** 3 ** 2, -7 % 3, 2 * 7 % 4.
"""

from __future__ import annotations

import re

# A number as English writes it: with or without commas between thousands, with no zeros before it.
NUMBER = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+|[1-9][0-9]*|0)(?:\.[0-9]+)?|\.[0-9]+"
_TOKEN = re.compile(rf" *((?:{NUMBER})(?![.,_]?[0-9])|\*\*|//|[-+*/%()]|sqrt) *")
_OPERATORS = frozenset({"**", "//", "+", "-", "*", "/", "%"})
_DIVIDES_WHOLE = frozenset({"//", "%"})


def written_out(text: str) -> str:
    """The same expression with blanks around its operators, no others, and no commas in its numbers.

    Raises:
        ValueError: it is not numbers with one operator between every two, parentheses and square roots, or it may be
            read in more ways than one.
    """
    tokens = _tokens(text)
    if "-" in tokens and not _DIVIDES_WHOLE.isdisjoint(tokens):
        raise ValueError("a whole division, where something may be negative")
    return _Reader(tokens).whole()


def _tokens(text: str) -> list[str]:
    tokens, place = list[str](), 0
    while place < len(text):
        found = _TOKEN.match(text, place)
        if found is None:
            raise ValueError("something else than arithmetic")
        tokens.append(found[1].replace(",", ""))
        place = found.end()
    return tokens


class _Reader:
    """Reads an expression from its beginning to its end. Precedence is left to whoever computes it."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = iter([*tokens, "end"])
        self._next = next(self._tokens)

    def whole(self) -> str:
        expression = self._expression()
        if self._next != "end":
            raise ValueError("not well formed")
        return expression

    def _take(self) -> str:
        taken, self._next = self._next, next(self._tokens, "end")
        return taken

    def _expression(self) -> str:
        parts, operators = [self._operand()], list[str]()
        while self._next in _OPERATORS:
            operators.append(self._take())
            parts += [operators[-1], self._operand()]
        _refuse_ambiguous(parts[::2], operators)
        return " ".join(parts)

    def _operand(self) -> str:
        sign = self._take() if self._next == "-" else ""
        return sign + self._unsigned(self._take())

    def _unsigned(self, first: str) -> str:
        if first == "(":
            return self._in_parentheses()
        if first != "sqrt":
            return _number(first)
        inner = self._take()
        if inner == "(":
            return "sqrt" + self._in_parentheses()
        if self._next == "**":
            raise ValueError("a root of a power, or a power of a root")
        return f"sqrt({_number(inner)})"

    def _in_parentheses(self) -> str:
        inner = self._expression()
        if self._take() != ")":
            raise ValueError("not well formed")
        return f"({inner})"


def _refuse_ambiguous(operands: list[str], operators: list[str]) -> None:
    """Refuse what the order of operations that everybody learns does not settle."""
    for place, operator in enumerate(operators):
        if operator == "**" and (operands[place].startswith("-") or operators[place + 1 : place + 2] == ["**"]):
            raise ValueError("a power of something negative, or of a power")
        if operator == "%" and len(operators) > 1:
            raise ValueError("a remainder among other operations")


def _number(token: str) -> str:
    if not token[-1].isdigit():
        raise ValueError("a number is missing")
    return token
