"""A task as a person gave it (an argument, standard input, a chat), or one line on why it cannot be one."""

from __future__ import annotations

from typing import BinaryIO

from agent.errors import UsageError

MAX_TASK_CHARS = 200_000  # about 50,000 tokens: more than any small model's window
MAX_TASK_BYTES = 4 * MAX_TASK_CHARS  # UTF-8's longest character has 4


def read_task(argument: str | None, stdin: BinaryIO) -> str:
    """The task; `-` reads it from `stdin`, of which no more is read than a task may hold.

    Raises:
        UsageError: there is none, it is empty, too long, or not UTF-8 text.
    """
    if argument is None:
        raise UsageError('no task was given; write it in quotes: main.py "What is 7 * 6?" (or see main.py --help)')
    return check_task(_from_stdin(stdin) if argument == "-" else argument)


def check_task(task: str) -> str:
    """The task as it is.

    Raises:
        UsageError: it is empty, too long, or not UTF-8 text.
    """
    if len(task) > MAX_TASK_CHARS:
        raise too_long()
    if any("\ud800" <= character <= "\udfff" for character in task):
        raise UsageError("the task is not UTF-8 text; save it as UTF-8 and give it with -")
    if not task.strip():
        raise UsageError("the task is empty; say what to do")
    return task


def _from_stdin(stdin: BinaryIO) -> str:
    data = stdin.read(MAX_TASK_BYTES + 1)
    if len(data) > MAX_TASK_BYTES:
        raise too_long()
    try:
        return data.decode("utf-8").removeprefix("\ufeff").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UsageError(f"the task on standard input is not UTF-8 (byte {error.start}); save it as UTF-8") from None


def too_long() -> UsageError:
    """The refusal of a task that no window holds."""
    return UsageError(
        f"the task is longer than {MAX_TASK_CHARS:,} characters; shorten it (no small model's window holds it)"
    )
