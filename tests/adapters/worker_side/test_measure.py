from __future__ import annotations

import time

from day0_worker.measure import Measure


def test_spans_add_seconds_and_keep_the_peak() -> None:
    measure, began = Measure(), time.monotonic()
    with measure.span("cpu"):
        time.sleep(0.05)
        taken = bytearray(64 * 2**20)
        del taken
    time.sleep(0.2)
    with measure.span("cpu"):
        time.sleep(0.05)
    assert measure.spans == 2
    assert 0.1 <= measure.seconds <= time.monotonic() - began - 0.2
    assert 60 * 2**20 <= measure.peak_bytes <= 80 * 2**20


def test_a_span_that_is_interrupted_counts_where_it_ran() -> None:
    measure, began = Measure(), time.monotonic()
    with measure.span("cpu"):
        time.sleep(0.05)
        measure.interrupt()
        before = (measure.seconds, measure.spans)
        interrupted = time.monotonic()
        time.sleep(0.3)
        again = time.monotonic()
        measure.go_on()
        assert (measure.seconds, measure.spans) == (0.0, 0)
        time.sleep(0.02)
    assert before[1] == measure.spans == 1
    assert 0.05 <= before[0] <= interrupted - began
    assert 0.02 <= measure.seconds <= time.monotonic() - again


def test_nothing_is_interrupted_where_nothing_is_measured() -> None:
    measure = Measure()
    measure.interrupt()
    measure.go_on()
    assert (measure.seconds, measure.spans) == (0.0, 0)
