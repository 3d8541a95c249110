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
