"""calculate_math: arithmetic on a safe syntax tree, its size bounded before anything is computed.

Three walls, each enough for its own class of attack: a lexer that knows only numbers, names and operators (no text, no
attribute, no keyword gets past it); an evaluator that knows only the nodes and names listed here; and an estimate of
every result's size in bits before the operation runs. So the time an expression takes is bounded by its length.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import math
import operator
import re
from collections.abc import Callable
from typing import Any

from pydantic import Field

from agent.tools.base import Params, Tool, ToolContext, ToolError

MAX_CHARS = 1000
MAX_BITS = 14_000  # about 4,200 digits; Python itself refuses to print more than 4,300
MAX_DEPTH = 50

Number = int | float

_CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e}

# name: (function, fewest arguments, most arguments)
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "sqrt": (math.sqrt, 1, 1),
    "sin": (math.sin, 1, 1),
    "cos": (math.cos, 1, 1),
    "tan": (math.tan, 1, 1),
    "log": (math.log, 1, 2),
    "log2": (math.log2, 1, 1),
    "log10": (math.log10, 1, 1),
    "exp": (math.exp, 1, 1),
    "abs": (abs, 1, 1),
    "pow": (operator.pow, 2, 2),
    "floor": (math.floor, 1, 1),
    "ceil": (math.ceil, 1, 1),
    "round": (round, 1, 2),
    "min": (min, 2, MAX_CHARS),
    "max": (max, 2, MAX_CHARS),
    "factorial": (math.factorial, 1, 1),
    "comb": (math.comb, 2, 2),
}

_OPERATORS: dict[type[ast.operator], tuple[str, Callable[..., Any]]] = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
    ast.FloorDiv: ("//", operator.floordiv),
    ast.Mod: ("%", operator.mod),
    ast.Pow: ("**", operator.pow),
    ast.LShift: ("<<", operator.lshift),
    ast.RShift: (">>", operator.rshift),
}

# Signs that can mean nothing else in arithmetic are part of the language.
_SIGNS = str.maketrans({"\u00d7": "*", "\u00f7": "/", "\u2212": "-", "\u00b7": "*", "\u22c5": "*"})

_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_][A-Za-z_0-9]*)"
    r"|(?P<sign>\*\*|//|<<|>>|[-+*/%^(),]))"
)

# Signs of a programming language: an expression that holds one is no arithmetic that was written badly.
_CODE_SIGNS = frozenset("'\"`[]{}.:;@&|~<>\\#")
_CHARACTER_HELP = {
    "=": "Leave out the equals sign: give only what is to be computed.",
    ".": "Write function and constant names alone, without a dot.",
    "'": "Text cannot be computed with; use numbers.",
    '"': "Text cannot be computed with; use numbers.",
    "!": "Write factorial with parentheses instead of an exclamation mark.",
    "$": "Leave out currency signs and units.",
    "\u20ac": "Leave out currency signs and units.",
    "[": "Group with round parentheses only.",
    "{": "Group with round parentheses only.",
}
_COMMA_HELP = "Commas only separate the arguments of a function: write large numbers without them."
_TOO_LARGE = "The result would be too large to compute. Use smaller numbers, or logarithms."

# What a grammar lets a model write here: up to 21 operands with an operator or a comma between them, each with up to
# three opening and closing parentheses, which need not match. It keeps words out, not expressions.
_OPERAND = (
    rf"(-|\(|({'|'.join(_FUNCTIONS)})\(){{0,3}}"
    rf"([0-9]{{1,18}}(\.[0-9]{{1,18}})?|{'|'.join(_CONSTANTS)})\){{0,3}}"
)
DECODE_PATTERN = rf"^{_OPERAND}( ?(\*\*|//|[-+*/%^,]) ?{_OPERAND}){{0,20}}$"


class CalculateMathParams(Params):
    """What calculate_math takes."""

    expression: str = Field(
        min_length=1,
        max_length=MAX_CHARS,
        description="Arithmetic only: numbers, parentheses, + - * / // % and ^ for powers, the constants pi and e, "
        "and the functions sqrt, sin, cos, tan (radians), log (natural; the base may follow), exp, abs, pow, floor, "
        "ceil, round, min, max, factorial, comb.",
        json_schema_extra={"decodePattern": DECODE_PATTERN},
    )


class CalculateMath(Tool[CalculateMathParams]):
    """Evaluates one expression. `^` is power, with power's precedence and right associativity; nothing is rounded."""

    name = "calculate_math"
    description = "Computes one arithmetic expression and returns the number."
    effect = "read"
    max_chars = 4500  # the longest result whole: half a number is worse than none
    self_timed = True  # bounded by construction (see the module's docstring); a thread would cost more than the sum
    keywords = (
        *("calculate", "compute", "how much is", "plus", "minus", "multiply", "multiplied", "divide", "divided"),
        *("subtract", "sum of", "product of", "square root", "percent of", "to the power", "squared", "factorial"),
    )
    params = CalculateMathParams

    def run(self, params: CalculateMathParams, context: ToolContext) -> str:  # noqa: ARG002 the signature of every tool
        """The number as Python prints it, unrounded.

        Raises:
            ToolError: bad_args, not_arithmetic, too_large, division_by_zero or domain.
        """
        value = evaluate(params.expression)
        try:
            return str(value)
        except ValueError:  # a process may have lowered Python's own limit on printed digits
            raise ToolError("too_large", _TOO_LARGE) from None


def evaluate(expression: str) -> Number:
    """The value of an arithmetic expression.

    Raises:
        ToolError: bad_args; not_arithmetic, it is a program; too_large, division_by_zero or domain. Nothing else,
            whatever the text.
    """
    if len(expression) > MAX_CHARS:
        raise ToolError("bad_args", f"The expression is longer than {MAX_CHARS} characters. Compute it in parts.")
    tokens = _tokens(expression.translate(_SIGNS).strip())
    source = " ".join("**" if token == "^" else token for token in tokens)  # noqa: S105 a sign, not a secret
    try:
        tree = ast.parse(source, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the last two: the parser's own stack ran out
        raise ToolError("bad_args", _syntax_help(tokens)) from None
    return _value(tree.body, 0)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = depth = 0
    previous = ""
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _refused_character(text[position:].lstrip()[0])
        token, kind = match[match.lastgroup or 0], match.lastgroup
        if kind == "name" and _is_of_python(token):
            raise ToolError("not_arithmetic", _unknown_name(token))
        _refuse_misread(tokens[-1] if tokens else "", previous, token, kind)
        depth += (token == "(") - (token == ")")  # noqa: S105 a sign, not a secret
        if depth > MAX_DEPTH:
            raise ToolError("bad_args", "The parentheses are nested too deeply. Compute it in parts.")
        tokens.append(token)
        position, previous = match.end(), kind or ""
    if not tokens:
        raise ToolError("bad_args", "The expression is empty.")
    return tokens


def _refuse_misread(before: str, before_kind: str, token: str, kind: str | None) -> None:
    """What Python would read otherwise than a person means, or could only call invalid syntax."""
    if kind == "number" and len(token) > 1 and token[0] == "0" and token[1].isdigit():
        raise ToolError("bad_args", f"A number cannot start with zeros. {_COMMA_HELP}")
    ends_value = before_kind in {"number", "name"} or before == ")"
    starts_value = kind in {"number", "name"} or token == "("  # noqa: S105 a sign, not a secret
    is_call = before_kind == "name" and token == "("  # noqa: S105 a sign, not a secret
    if ends_value and starts_value and not is_call:
        raise ToolError("bad_args", f"An operator is missing between {before[:20]} and {token[:20]}.")


def _refused_character(char: str) -> ToolError:
    shown = char if char.isprintable() else f"U+{ord(char):04X}"
    message = f"{shown} is not part of an arithmetic expression. {_CHARACTER_HELP.get(char, '')}".rstrip()
    return ToolError("not_arithmetic" if char in _CODE_SIGNS else "bad_args", message)


def _is_of_python(name: str) -> bool:
    """Whether a name means something to Python and nothing in arithmetic."""
    return name.startswith("_") or keyword.iskeyword(name) or (hasattr(builtins, name) and name not in _FUNCTIONS)


def _syntax_help(tokens: list[str]) -> str:
    percent = (
        " The % sign is the remainder of a division: for a percentage divide by a hundred." if "%" in tokens else ""
    )
    return f"The expression is not well formed: check its operators and parentheses.{percent}"


def _value(node: ast.expr, depth: int) -> Number:
    if depth > MAX_DEPTH:
        raise ToolError("bad_args", "The expression is nested too deeply. Compute it in parts.")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _real(number, "this number")
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.Name(id=name):
            raise ToolError("bad_args", _unknown_name(name))
        case ast.UnaryOp(op=ast.UAdd(), operand=inner):
            return _value(inner, depth + 1)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner, depth + 1)
        case ast.BinOp():
            return _chain(node, depth)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _call(name, tuple(_value(argument, depth + 1) for argument in arguments))
        case ast.Tuple():
            raise ToolError("bad_args", _COMMA_HELP)
    raise ToolError("not_arithmetic", "Only numbers, operators and the listed functions can be used.")


def _chain(node: ast.BinOp, depth: int) -> Number:
    """A long sum leans to the left as deep as it has terms: walk down that side in a loop, not by recursion."""
    links: list[ast.BinOp] = []
    left: ast.expr = node
    while isinstance(left, ast.BinOp):
        links.append(left)
        left = left.left
    value = _value(left, depth + 1)
    for link in reversed(links):
        if type(link.op) not in _OPERATORS:
            raise ToolError("bad_args", "That operator is not known.")
        sign, function = _OPERATORS[type(link.op)]
        value = _compute(sign, function, (value, _value(link.right, depth + 1)))
    return value


def _call(name: str, arguments: tuple[Number, ...]) -> Number:
    if name in _CONSTANTS:
        raise ToolError("bad_args", f"{name} is a number and takes no arguments: write an operator after it.")
    if name not in _FUNCTIONS:
        raise ToolError("not_arithmetic", _unknown_name(name))
    function, fewest, most = _FUNCTIONS[name]
    if not fewest <= len(arguments) <= most:
        wanted = str(fewest) if fewest == most else f"at least {fewest}" if most == MAX_CHARS else f"{fewest} or {most}"
        raise ToolError("bad_args", f"{name} takes {wanted} argument(s), not {len(arguments)}. {_COMMA_HELP}")
    return _compute(name, function, arguments)


def _compute(name: str, function: Callable[..., Any], arguments: tuple[Number, ...]) -> Number:
    if _bits(name, arguments) > MAX_BITS:
        raise ToolError("too_large", _TOO_LARGE)
    try:
        result = function(*arguments)
    except ZeroDivisionError:
        raise ToolError("division_by_zero", f"{name} divides by zero here.") from None
    except OverflowError:
        raise ToolError("too_large", _TOO_LARGE) from None
    except ValueError:
        raise ToolError("domain", f"{name} is not defined for such a number.") from None
    except TypeError:
        raise ToolError("bad_args", f"{name} takes whole numbers only here.") from None
    return _real(result, name)


def _real(result: object, name: str) -> Number:
    if isinstance(result, complex) or result != result:  # noqa: PLR0124 only nan differs from itself
        raise ToolError("domain", f"The result of {name} is not a real number.")
    if isinstance(result, int):
        return result
    assert isinstance(result, float)  # noqa: S101 every listed function gives one of these; this tells mypy
    if math.isinf(result):
        raise ToolError("too_large", _TOO_LARGE)
    return result


def _bits(name: str, arguments: tuple[Number, ...]) -> float:
    """At most how many bits a whole result has (or one on the way to it), 0 where that is no more than its arguments'.

    Floats have a fixed size. The estimate itself must stay small: factors are clamped where they alone decide.
    """
    wide = MAX_BITS + 1
    match name, arguments:
        case (("+" | "-"), (int(a), int(b))):
            return max(a.bit_length(), b.bit_length()) + 1
        case "*", (int(a), int(b)):
            return a.bit_length() + b.bit_length()
        case (("**" | "pow"), (int(base), int(power))) if abs(base) > 1 and power > 0:
            return min(power, wide) * math.log2(abs(base))
        case "<<", (int(a), int(shift)):
            return a.bit_length() + shift
        case "round", (int(), int(places)) if places < 0:
            return min(-places, wide) * math.log2(10)
        case "factorial", (int(n),) if n > 1:
            return math.lgamma(min(n, wide) + 1) / math.log(2)
        case "comb", (int(n), int(k)) if 0 < k < n:
            return _comb_bits(n, min(k, n - k))
    return 0


def _comb_bits(n: int, k: int) -> float:
    """comb(n, k) is at least 2**k for k up to n/2, and at most (e*n/k)**k."""
    return k if k > MAX_BITS else k * (math.log2(n) - math.log2(k) + math.log2(math.e))


def _unknown_name(name: str) -> str:
    return f"{name[:20]} is not known here. The names are: {', '.join([*_FUNCTIONS, *_CONSTANTS])}."
