"""When to ask again: hints, bounds, and the gate that all threads share."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from day0.adapters.sources import retry
from day0.adapters.sources.http_failure import HttpFailure
from support.clock import Clock


def failure(status: int = 503, **headers: str) -> HttpFailure:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpFailure("failed", host="hub:443", status=status, headers=named)


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (429, {"Retry_After": "7"}, 7.0),
        (503, {"Retry_After": "1.5"}, 1.5),
        (429, {"RateLimit": '"api";r=0;t=55'}, 56.0),
        (429, {"RateLimit": '"api"; r=0; t=55', "Retry_After": "3"}, 56.0),
        (429, {"RateLimit": '"api";r=12;t=55', "Retry_After": "3"}, 3.0),
        (429, {"RateLimit": '"api";r=12;t=55'}, None),
        (500, {"RateLimit": '"api";r=0;t=55'}, None),
        (429, {}, None),
        (429, {"Retry_After": "soon"}, None),
        (429, {"Retry_After": "-5"}, None),
        (429, {"Retry_After": "²"}, None),
        (429, {"Retry_After": "Wed, 99 Foo 2026 00:00:00 GMT"}, None),
        (429, {"Retry_After": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
    ],
)
def test_the_servers_hint(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert failure(status, **headers).hint == seconds


def test_a_date_is_held_against_the_servers_own_clock() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=600)
    date = format_datetime(soon, usegmt=True)
    hint = failure(429, Retry_After=date).hint
    assert hint is not None
    assert 300 < hint <= 600
    server_now = format_datetime(soon - timedelta(seconds=20), usegmt=True)
    assert failure(429, Retry_After=date, Date=server_now).hint == 20.0


def test_tries_are_bounded_in_number(clock: Clock) -> None:
    calls = []

    def call() -> None:
        calls.append(1)
        raise failure()

    with pytest.raises(HttpFailure):
        retry.retrying(call, "it")
    assert len(calls) == retry.MAX_TRIES
    assert clock.about([0.5, 1.0, 2.0, 4.0])


def test_waiting_is_bounded_in_total(clock: Clock) -> None:
    def call() -> None:
        retry.gate_of("hub:443").wait()
        raise failure(429, Retry_After="300")

    with pytest.raises(HttpFailure):
        retry.retrying(call, "it")
    assert sum(clock.waits) <= retry.MAX_TOTAL_WAIT * 1.01


@pytest.mark.parametrize("status", [400, 401, 403, 404, 416])
def test_what_cannot_pass_is_not_tried_again(clock: Clock, status: int) -> None:
    with pytest.raises(HttpFailure):
        retry.Tries("it").again(failure(status))
    assert clock.waits == []


def test_a_refused_connection_is_tried_once_more(clock: Clock) -> None:
    tries = retry.Tries("it")
    tries.again(HttpFailure("no connection", refused=True))
    with pytest.raises(HttpFailure):
        tries.again(HttpFailure("no connection", refused=True))


def test_a_kept_connection_that_was_closed_costs_no_wait(clock: Clock) -> None:
    tries = retry.Tries("it")
    tries.again(HttpFailure("closed", dropped=True))
    assert clock.waits == []
    tries.again(HttpFailure("closed", dropped=True))
    assert len(clock.waits) == 1


def test_a_long_download_may_be_cut_often_as_long_as_it_moves(clock: Clock) -> None:
    tries = retry.Tries("it")
    for _ in range(50):
        tries.again(HttpFailure("cut"), taken=retry.PROGRESS)
    for _ in range(retry.MAX_TRIES - 2):
        tries.again(HttpFailure("cut"), taken=1)
    with pytest.raises(HttpFailure):
        tries.again(HttpFailure("cut"), taken=1)


def test_all_threads_wait_at_one_gate(clock: Clock) -> None:
    retry.Tries("one").again(failure(429, Retry_After="10"))
    begun = clock.now()
    waited = []

    def ask() -> None:
        retry.gate_of("hub:443").wait()
        waited.append(clock.now() - begun)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert min(waited) >= 10
    retry.gate_of("other:443").wait()
    assert clock.now() - begun == max(waited)
