"""What guards say to the model. One line each; the budget line follows them in the same message."""

NO_EVIDENCE = "Your answer was rejected: no tool has succeeded yet. Call a tool and base the answer on its result."
REPLAN_REPEATED = "You already made this exact call. Do not repeat it: change your plan, use what you have, or answer."
REPLAN_SETBACKS = "The last turns brought nothing new. Change your plan: another tool, other arguments, or answer."
REPLAN_STUCK = "You said you are stuck. Change your plan: another tool, other arguments, or answer with what you have."
ANSWER_ONLY = "This is the last call: no further action is possible. Give the final answer now, from what you have."


def invalid_reply(reason: str) -> str:
    """The observation after a reply that could not be used."""
    return f"Your reply could not be used: {reason.rstrip('.')}. Reply with one JSON object of the required form."


def repeated_call(earlier_step: int) -> str:
    """The observation in place of a call that was made before and is not made again."""
    return f"Not executed again: step {earlier_step + 1} made the same call, and its result stands above."


def similar_call(earlier_step: int) -> str:
    """The observation in place of a search that asks in other words for what was searched before."""
    return (
        f"Not executed: step {earlier_step + 1} searched for the same in other words, and its result stands above."
        " Search for something else, or answer."
    )


def not_run_after_failure() -> str:
    """The observation in place of an action whose turn did not come."""
    return "Not run: an action before it failed."


def forbidden_call(name: str) -> str:
    """The observation in place of a call that the policy of the run denies."""
    return f"{name} may not be used in this run. Do without it, or answer."


def denied_call(name: str) -> str:
    """The observation in place of a call that a person did not allow."""
    return f"The person did not allow this call of {name}. Do without it, or answer."


def too_many_calls(most: int) -> str:
    """The observation in place of the calls of a reply that holds more than are made."""
    return f"Not run: only the first {most} calls of a reply are made. Make fewer at a time."


def out_of_time() -> str:
    """The observation in place of an action that the run has no time left for."""
    return "Not run: the time of the run is over."
