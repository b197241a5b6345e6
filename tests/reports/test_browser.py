"""The page in a real browser: policy kept, no script run, deep links open, print shows everything."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from day0.reports.page.text import element_id
from day0.reports.render import render, render_runs
from day0.reports.store import summarize
from support.sample_records import BAD_LAYER, ORT
from support.sample_report import sample_report

pytestmark = pytest.mark.slow

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-sync",
    "--disable-component-update",
    "--disable-extensions",
    "--enable-logging=stderr",
)


def browse(tmp_path: Path, url: str, *flags: str) -> subprocess.CompletedProcess[str]:
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("no Chromium on this machine")
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [browser, *FLAGS, profile, *flags, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def console(answer: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in answer.stderr.splitlines() if "CONSOLE" in line]


def saved(tmp_path: Path, page: str, name: str = "report.html") -> Path:
    path = tmp_path / name
    path.write_text(page, encoding="utf-8")
    return path


def num_pages(tmp_path: Path, page: str, name: str) -> int:
    source, target = saved(tmp_path, page, f"{name}.html"), tmp_path / f"{name}.pdf"
    browse(tmp_path, source.as_uri(), f"--print-to-pdf={target}", "--no-pdf-header-footer")
    return len(re.findall(rb"/Type\s*/Page\b", target.read_bytes()))


def test_the_browser_has_nothing_to_complain_about(tmp_path: Path) -> None:
    pages = {"report": render(sample_report()), "runs": render_runs([summarize(sample_report())])}
    for name, page in pages.items():
        answer = browse(tmp_path, saved(tmp_path, page, f"{name}.html").as_uri(), "--dump-dom")
        assert console(answer) == [], name
        assert "<main>" in answer.stdout


def test_the_policy_is_in_force(tmp_path: Path) -> None:
    """A script and a style of somebody else's are refused, so the check above can fail."""
    intruder = "<script>document.title = 'taken'</script><p style='color: red'>"
    page = render(sample_report()).replace("<main>", f"<main>{intruder}")
    answer = browse(tmp_path, saved(tmp_path, page).as_uri(), "--dump-dom")
    assert "<title>taken" not in answer.stdout
    assert len(console(answer)) == 2


def test_a_hostile_model_name_runs_nothing(tmp_path: Path) -> None:
    taken = "document.title='taken'"
    name = f'</title></style><script>{taken}</script><img src=x onerror="{taken}">'
    page = render(sample_report().model_copy(update={"model": name}))
    answer = browse(tmp_path, saved(tmp_path, page).as_uri(), "--dump-dom")
    assert console(answer) == []
    assert "<title>taken" not in answer.stdout
    assert "<img" not in answer.stdout


def test_a_deep_link_opens_the_table_that_holds_its_row(tmp_path: Path) -> None:
    slug = element_id(ORT)
    row, table = f"numerics--{slug}--model.layers.{BAD_LAYER}", f"numerics--{slug}--nodes"
    path = saved(tmp_path, render(sample_report()))
    opened = re.compile(rf'<details class="fold" id="{re.escape(table)}" open=""')
    assert not opened.search(browse(tmp_path, path.as_uri(), "--dump-dom").stdout)
    assert opened.search(browse(tmp_path, f"{path.as_uri()}#{row}", "--dump-dom").stdout)


def test_print_shows_what_is_folded_on_the_screen(tmp_path: Path) -> None:
    page = render(sample_report(layers=60))
    assert "details::details-content" in page
    opened = num_pages(tmp_path, page.replace("<details ", "<details open "), "opened")
    # Another rule needs another hash; the policy is not what this test is about.
    bare = re.sub(r"<meta http-equiv[^>]+>", "", page).replace("details::details-content", "details::marker")
    assert num_pages(tmp_path, page, "as-it-is") == opened > num_pages(tmp_path, bare, "without-the-rule") > 1


@pytest.mark.parametrize(("scheme", "ground"), [("0", (14, 17, 22)), ("1", (255, 255, 255))])
def test_the_page_follows_the_readers_scheme(tmp_path: Path, scheme: str, ground: tuple[int, ...]) -> None:
    picture = tmp_path / "screen.png"
    browse(
        tmp_path,
        saved(tmp_path, render(sample_report())).as_uri(),
        f"--blink-settings=preferredColorScheme={scheme}",
        f"--screenshot={picture}",
        "--window-size=1280,900",
    )
    assert first_pixel(picture.read_bytes()) == ground


def first_pixel(png: bytes) -> tuple[int, ...]:
    """Red, green and blue of the upper left corner; there no PNG filter changes anything."""
    data, place = b"", 8
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        if kind == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += length + 12
    return tuple(zlib.decompress(data)[1:4])
