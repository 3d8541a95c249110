"""The code guard: which messages hold source code, and which of them ask for words alone."""

from __future__ import annotations

import time

import pytest

from agent.guards.code_guard import MAX_CHARS, holds_code, only_discusses_code

CODE = [
    "capacity = 1024 * 16;",
    "Review this code: capacity = 1024 * 16;",
    "Please review:\n\ncapacity = 1024 * 16\nretries = 3",
    "review: capacity = 1024 * 16",
    "```\n749 * 192\n```",
    "Explain `timeout_ms = 30 * 1000`",
    "print(2+2)",
    "run this python code: print(2+2)",
    "def area(r):\n    return 3.14 * r * r",
    "class Ring:\n    size = 8",
    "import math",
    "import numpy as np\nnp.zeros(3)",
    "from math import sqrt",
    "#include <stdio.h>",
    "int main() { return 2 * 21; }",
    "const limit = 60 * 60",
    "var total = 12 + 30;",
    "let total = 12 + 30;",
    "for (int i = 0; i < 10; i++) sum += i;",
    "for i in range(10): total += i",
    "what does x => x * 2 do in arr.map(x => x * 2)",
    "function twice(n) { return n * 2 }",
    'fn main() { println!("{}", 6 * 7); }',
    "if (a == b) { c = 2 * 3; }",
    "while n > 0:\n    n = n - 1",
    "self.size = self.width * self.height;",
    "buffer[4] = 16 * 1024;",
    "SELECT price * 2 FROM items",
    '<div class="box">3 + 4</div>',
    "MAX_SIZE = 1 << 20",
    "maxSize = 2 * 512",
    "total += 3",
    "What is wrong with `count = 10 / 0`?",
    "What is wrong with `average = total / 0`?",
    "x = foo(3) && bar(4)",
    "std::vector v",
    "price_total = 3 * 4",
    "let f = lambda x: x * 2",
    "math.sqrt(144)",
    "#!/bin/sh\nexpr 3 + 4",
    "y := 3 * 4",
    "node->next = head",
    "ptr->size(3)",
    "$this->total = 3 * 4",
    "my_list->count",
    "status_code == 200",
    "items[0] == 4",
    "box.width == 3 * 2",
    "Is `n == 3 * 2` right?",
    "count === 3 * 4",
    "user_name != 'Bob'",
    "(a, b) => a * b",
    "() => { return 3 * 4 }",
    "x => { return 3 }",
    "for (;;) i++;",
    "Foo::bar",
    "flag == True",
    "for x in items.list: total += x",
    "public class Ring {",
    "Explain: class Ring(object):",
    "return 3 * x",
]

PROSE = [
    "749 x 192",
    "What is 12 * (3 + 4)?",
    "2^10",
    "2**10",
    "10 // 3",
    "sqrt(144)",
    "What is the square root of 144?",
    "log(100) / log(10)",
    "749 * 192 =",
    "749 * 192;",
    "Let x = 5. What is x * 3?",
    "x = 5; y = 7. What is x * y?",
    "What is `749 * 192`?",
    "Speed = distance / time. How fast is 100 m in 9.6 s?",
    "Solve 3x + 4 = 19 for x.",
    "If x = 5 and y = 7, what is x * y?",
    "f(x) = 3x + 4, what is f(2)?",
    "What is C++?",
    "Which file(s) are in the folder?",
    "Save 42 to notes/result.txt.",
    "What time is it in Tokyo?",
    "Let us meet at 10:30; bring the report.",
    "While you are at it: what is 3 + 4?",
    "If possible, work out the following:",
    "I return on Monday (the 3rd).",
    "He said -- and I quote -- 3 times 4.",
    "It costs $5 (or 4 euros); which is cheaper?",
    "Import duties are 20% of 340.",
    "She is first in her class: what a result!",
    "My e-mail is ann@example.com",
    "See https://example.com/a?b=1 for more.",
    "The ratio is 16:9.",
    "Review the file src/main.py.",
    "Review this sentence: the cat sat on the mat.",
    "Is 3 < 5?",
    "A -> B -> C",
    "Hello!",
    "Select a colour from the list.",
    "Convert 5 km->miles",
    "EUR->USD: 5 * 1.1",
    "Berlin->Paris->Rome: 878 + 1106 km.",
    "Convert (5 km) => miles",
    "(EUR) => USD.",
    "5 => 6",
    "Is 2+2 == 4?",
    "Is (2 + 2) == 4?",
    "Is 749*192==143808?",
    "Is sqrt(16) == 4, and is 2 ** 3 == 8?",
    "Is 1 km == 1000 m?",
    "Is 5' == 60 in?",
    "Is 5 != 6?",
    "5 === 5",
    "Is x == 5 if 2x == 10?",
    "Is the answer == 4?",
    "Is 7 % 2 == 1?",
    "Is 50%=0.5?",
    "Is it a language like those two (Java, C++)?",
    "I like g++; what is 3 + 4?",
    "The ratio is 3::4.",
    "What is 5% of 200 at the rate(5%)?",
    "Look for shops in Berlin. What is 3 + 4?",
    "Ask for those in zip code 12345, and add 3 + 4.",
    "I teach in class tomorrow: what is 3 + 4?",
    "Is this a good class (3 hours)?",
    "For the function f(x) = 3x + 4, what is f(2)?",
    "What is a function (in maths)?",
    "return the value of 12 * (3+4)",
    "Fine :=) and 3 + 4?",
]


@pytest.mark.parametrize("text", CODE)
def test_code_is_seen(text: str) -> None:
    assert holds_code(text)


@pytest.mark.parametrize("text", PROSE)
def test_prose_and_arithmetic_are_no_code(text: str) -> None:
    assert not holds_code(text)


@pytest.mark.parametrize(
    "text",
    [
        "Review this code: capacity = 1024 * 16;",
        "Explain what this does: for i in range(3): total += i",
        "Is this correct? app.run(); file = 3;",
        "What is wrong with `count = 10 / 0`?",
        "Refactor:\n```\nrun = 1\n```",
    ],
)
def test_words_about_code_need_no_tool(text: str) -> None:
    assert holds_code(text)
    assert only_discusses_code(text)


@pytest.mark.parametrize(
    "text",
    [
        "run this python code: print(2+2)",
        "Execute `total = sum([1, 2])` and explain the result.",
        "What does this code print? print(3 * 4)",
        "Review `capacity = 1024 * 16;` and save your notes to review.md",
        "total += 3",
    ],
)
def test_what_runs_or_keeps_code_may_need_a_tool(text: str) -> None:
    assert holds_code(text)
    assert not only_discusses_code(text)


@pytest.mark.parametrize("unit", ["a = ", "a.b", "f(", "x ", "return ", "(){", "for a in ", "a" * 50 + " ", "SELECT "])
def test_the_time_is_bounded(unit: str) -> None:
    text = (unit * MAX_CHARS)[: 2 * MAX_CHARS]
    for broken in (text, "\n".join(text[at : at + 399] for at in range(0, len(text), 399))):
        started = time.perf_counter()
        holds_code(broken)
        only_discusses_code(broken)
        assert time.perf_counter() - started < 1
