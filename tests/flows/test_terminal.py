from __future__ import annotations

import os

import pytest

from day0.flows.terminal import printable, say, stdout_for_data, write_json


def test_only_data_reaches_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    with stdout_for_data() as data:
        print("from python", flush=True)
        os.write(1, b"from native code\n")
        write_json(data, {"a": [1, "é"]})
    print("after", flush=True)
    captured = capfd.readouterr()
    assert captured.out == '{\n  "a": [\n    1,\n    "é"\n  ]\n}\nafter\n'
    assert captured.err == "from python\nfrom native code\n"


def test_json_is_strict() -> None:
    with pytest.raises(ValueError, match="JSON"), stdout_for_data() as data:
        write_json(data, {"a": float("nan")})


def test_what_could_steer_a_terminal_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert printable("a\x1b[31mb\tc\r\nd\u202e") == "a\ufffd[31mb\ufffdc\ufffd\nd\ufffd"
    say("x\x07")
    assert capsys.readouterr().err == "x\ufffd\n"
