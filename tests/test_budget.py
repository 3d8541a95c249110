"""The gate: no sequence of reservations, settlements and refunds passes a cap, alone, nested, or from many threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.budget import FINAL_ANSWER_TOKENS, MIN_COMPLETION_TOKENS, BudgetEnforcer, Limits, Prices, Reservation
from agent.errors import BudgetExceededError, OnlyAnswerLeftError
from agent.state import Usage

PRICES = Prices(10_000, 30_000)  # the defaults: 10 and 30 micro-dollars a token


def enforcer(calls: int | None = None, cost: int | None = None, **more: object) -> BudgetEnforcer:
    return BudgetEnforcer(Limits(calls, cost), PRICES, **more)  # type: ignore[arg-type]  # keywords of the constructor


def counted(prompt: int | None, completion: int | None) -> Usage:
    return Usage(prompt_tokens=prompt, completion_tokens=completion)


def test_prices_round_up_to_a_whole_microdollar() -> None:
    assert Prices(1, 0).cost_microusd(1, 0) == 1
    assert Prices(1000, 0).cost_microusd(7, 0) == 7
    assert PRICES.cost_microusd(100, 10) == 1300


@given(st.integers(0, 10**6), st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**5))
def test_what_a_sum_pays_for_is_payable_and_one_token_more_is_not(left: int, prompt: int, a: int, b: int) -> None:
    prices = Prices(a, b)
    tokens = prices.completion_tokens_for(left, prompt)
    if tokens is None:
        assert b == 0
        assert prices.cost_microusd(prompt, 10**9) <= left
    elif tokens < 0:
        assert prices.cost_microusd(prompt, 0) > left
    else:
        assert prices.cost_microusd(prompt, tokens) <= left
        assert prices.cost_microusd(prompt, tokens + 1) > left


def test_ten_calls_are_ten_calls() -> None:
    gate = enforcer(calls=10)
    for _ in range(10):
        gate.settle(gate.reserve(10, 64), counted(10, 5))
    with pytest.raises(BudgetExceededError) as refused:
        gate.reserve(10, 64)
    assert refused.value.cap == "calls"


def test_eight_threads_cannot_start_more_than_the_cap_pays_for() -> None:
    """Eight calls of one cent at once under a cap of two cents: two start."""
    gate = enforcer(cost=20_000)
    started, line_up = [], threading.Barrier(8)

    def start(_: int) -> None:
        line_up.wait()
        with suppress(BudgetExceededError):
            started.append(gate.reserve(700, 100))  # exactly one cent

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    assert [r.entry.reserved_microusd for r in started] == [10_000, 10_000]


def test_the_completion_cap_shrinks_to_what_the_money_pays() -> None:
    gate = enforcer(cost=10_000)
    reservation = gate.reserve(700, 512)
    assert reservation.max_completion_tokens == 100
    assert reservation.entry.reserved_microusd == 10_000


def test_a_cap_below_the_floor_is_refused_before_anything_is_taken() -> None:
    gate = enforcer(cost=10 * 700 + 30 * (MIN_COMPLETION_TOKENS - 1))
    with pytest.raises(BudgetExceededError) as refused:
        gate.reserve(700, 512)
    assert (refused.value.cap, gate.calls_used, gate.committed_microusd) == ("cost", 0, 0)


def test_a_small_wish_is_its_own_floor() -> None:
    assert enforcer(cost=10 * 10 + 30 * 20).reserve(10, 20).max_completion_tokens == 20


def test_the_last_call_is_kept_for_the_answer() -> None:
    gate = enforcer(calls=2)
    gate.settle(gate.reserve(10, 64, purpose="act"), counted(10, 5))
    with pytest.raises(OnlyAnswerLeftError):
        gate.reserve(10, 64, purpose="act")
    assert gate.reserve(10, 64, purpose="answer").max_completion_tokens == 64


@given(st.integers(1, 3000), st.integers(64, 1024), st.integers(0, 300_000))
def test_after_an_action_a_final_answer_can_still_be_paid(prompt: int, wanted: int, cost: int) -> None:
    gate = enforcer(cost=cost)
    try:
        reservation = gate.reserve(prompt, wanted, purpose="act")
    except BudgetExceededError:
        assert gate.committed_microusd == 0
        return
    spent = reservation.max_completion_tokens
    gate.settle(reservation, counted(prompt, spent))
    assert gate.reserve(prompt + spent, FINAL_ANSWER_TOKENS).max_completion_tokens == FINAL_ANSWER_TOKENS


def test_settling_gives_the_rest_back() -> None:
    gate = enforcer(cost=200_000)
    entry = gate.settle(gate.reserve(1000, 500), counted(900, 20))
    assert (entry.settled_microusd, entry.settled_as) == (9600, "counted")
    assert gate.microusd_left() == 190_400


@pytest.mark.parametrize("usage", [counted(None, None), counted(None, 3), counted(3, None)])
def test_a_missing_count_is_unknown_and_the_reservation_stands(usage: Usage) -> None:
    gate = enforcer(cost=200_000)
    entry = gate.settle(gate.reserve(1000, 500), usage)
    assert (entry.settled_microusd, entry.settled_as) == (25_000, "unknown")


@pytest.mark.parametrize(
    ("usage", "charged"),
    [(counted(1001, 1), 10_040), (counted(10, 501), 15_130), (counted(None, 501), 25_030)],
)
def test_a_count_above_the_reservation_is_charged_in_full_and_ends_the_run(usage: Usage, charged: int) -> None:
    gate = enforcer(cost=200_000)
    entry = gate.settle(gate.reserve(1000, 500), usage)
    assert (entry.settled_microusd, entry.settled_as) == (charged, "overshoot")
    with pytest.raises(BudgetExceededError) as refused:
        gate.reserve(1, 64)
    assert refused.value.cap == "overshoot"


def test_an_overshoot_ends_its_run_and_not_its_neighbours() -> None:
    batch = enforcer(cost=200_000, scope="batch")
    bad, good = enforcer(parent=batch), enforcer(parent=batch)
    bad.settle(bad.reserve(10, 64), counted(10, 1000))
    good.reserve(10, 64)
    assert batch.committed_microusd == 30_100 + 2_020


def test_what_was_never_sent_is_given_back() -> None:
    gate = enforcer(calls=1, cost=200_000)
    assert gate.release(gate.reserve(1000, 500)).settled_as == "refunded"
    assert (gate.calls_used, gate.committed_microusd) == (0, 0)
    gate.reserve(1000, 500)


def test_a_reservation_is_settled_once() -> None:
    gate = enforcer()
    reservation = gate.reserve(1, 64)
    gate.settle(reservation, counted(1, 1))
    with pytest.raises(RuntimeError):
        gate.settle(reservation, counted(1, 1))
    with pytest.raises(RuntimeError):
        gate.release(reservation)


def test_the_parent_must_agree_and_a_refusal_takes_nothing_from_either() -> None:
    batch = enforcer(cost=10_000, scope="batch")
    run = enforcer(calls=10, cost=200_000, parent=batch)
    run.reserve(700, 100)
    with pytest.raises(BudgetExceededError) as refused:
        run.reserve(700, 100)
    assert refused.value.scope == "batch"
    assert (run.calls_used, run.committed_microusd, batch.committed_microusd) == (1, 10_000, 10_000)


def test_the_clock_refuses_too_and_the_nearest_deadline_counts() -> None:
    now = [0.0]
    batch = BudgetEnforcer(Limits(max_seconds=5), PRICES, scope="batch", clock=lambda: now[0])
    run = BudgetEnforcer(Limits(max_seconds=60), PRICES, parent=batch, clock=lambda: now[0])
    assert run.seconds_left() == 5
    now[0] = 5.0
    with pytest.raises(BudgetExceededError) as refused:
        run.reserve(1, 64)
    assert (refused.value.cap, refused.value.scope) == ("seconds", "batch")


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["reserve_act", "reserve_answer", "settle", "settle_unknown", "release"]),
        st.integers(0, 4000),
        st.integers(1, 1024),
        st.floats(0, 1),
    ),
    max_size=60,
)


@given(OPERATIONS, st.integers(1, 20), st.integers(0, 400_000), st.integers(0, 60_000), st.integers(0, 90_000))
def test_no_sequence_passes_a_cap(
    operations: list[tuple[str, int, int, float]], calls: int, cost: int, price_a: int, price_b: int
) -> None:
    """The property that matters: as long as the server keeps the cap it was sent, every cap holds at every moment."""
    prices = Prices(price_a, price_b)
    batch = BudgetEnforcer(Limits(calls + 3, cost), prices, scope="batch")
    runs = [BudgetEnforcer(Limits(calls, cost), prices, parent=batch) for _ in range(2)]
    open_: list[tuple[BudgetEnforcer, Reservation]] = []
    truth = [0, 0]
    for kind, prompt, wanted, share in operations:
        run = runs[prompt % 2]
        if kind.startswith("reserve"):
            try:
                purpose = "act" if kind == "reserve_act" else "answer"
                reservation = run.reserve(prompt, wanted, purpose=purpose)  # type: ignore[arg-type]  # of two literals
            except BudgetExceededError:
                continue
            open_.append((run, reservation))
        elif open_:
            owner, reservation = open_.pop()
            entry = reservation.entry
            used = counted(int(entry.prompt_tokens_bound * share), int(reservation.max_completion_tokens * share))
            if kind == "release":
                owner.release(reservation)
                continue
            truth[runs.index(owner)] += prices.cost_microusd(used.prompt_tokens or 0, used.completion_tokens or 0)
            owner.settle(reservation, counted(None, None) if kind == "settle_unknown" else used)
        for i, one in enumerate(runs):
            assert one.calls_used <= calls
            assert truth[i] <= one.committed_microusd <= cost
        assert batch.calls_used <= calls + 3
        assert sum(truth) <= batch.committed_microusd <= cost
