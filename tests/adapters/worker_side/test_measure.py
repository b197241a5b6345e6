from __future__ import annotations

import time

from day0_worker.measure import Measure


def test_spans_add_seconds_and_keep_the_peak() -> None:
    measure = Measure()
    with measure.span("cpu"):
        time.sleep(0.05)
        taken = bytearray(64 * 2**20)
        del taken
    with measure.span("cpu"):
        time.sleep(0.05)
    assert measure.spans == 2
    assert 0.1 <= measure.seconds < 1
    assert 60 * 2**20 <= measure.peak_bytes <= 80 * 2**20
