"""`batchyard ui` on the store of a real sweep, in a real browser."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tracked import start

selenium = pytest.importorskip("selenium", reason="selenium is not installed: pip install selenium")

from selenium import webdriver  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1600,1200",
)
PATIENCE_S = 90  # MLflow's pages are megabytes of script, and tests share the machine
PLOT = "document.querySelector('[role=tabpanel] .js-plotly-plot')"
FIRST_COLUMNS = (
    "params.`policy`",
    "params.`predictor`",
    "params.`workload`",
    "metrics.`throughput/output_throughput`",
)
JOBS = {f"{policy} seed={seed}" for policy in ("fcfs", "fair_share") for seed in (0, 1)}


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What `batchyard ui` prints: {"runs": "http://…", "charts": …, "compare": …}."""
    base = tmp_path_factory.mktemp("ui")
    sweep = start(base, "run", "-m", "policy=fcfs,fair_share", "seed=0,1", "workload.requests=60")
    said = sweep.communicate(timeout=300)[0]
    assert sweep.returncode == 0, said
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = start(base, "ui", "--port", str(port), "--no-browser")
    try:
        yield dict(_printed(server))
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(30) == 0


def _printed(server: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    assert server.stdout is not None
    for line in server.stdout:
        if line.startswith("Ctrl-C"):
            return
        name, _, address = line.partition(" ")
        if address.strip().startswith("http"):
            yield name, address.strip()
    raise AssertionError(f"batchyard ui ended with code {server.wait()}")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("no chromium with its chromedriver here: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


def see(browser: webdriver.Chrome, script: str, what: str) -> object:
    """The first true value of a piece of JavaScript, as soon as the page has it."""
    message = f"never seen: {what}; the page says: {browser.find_element('tag name', 'body').text[:500]}"
    return WebDriverWait(browser, PATIENCE_S).until(lambda page: page.execute_script(f"return {script}"), message)


def click(browser: webdriver.Chrome, role: str, text: str) -> None:
    script = f"[...document.querySelectorAll('[role={role}]')].find(t => t.innerText.trim() === '{text}')"
    see(browser, script, f"{role} {text}").click()  # type: ignore[attr-defined]


def choose(browser: webdriver.Chrome, axis: str, value: str) -> None:
    see(browser, f"document.querySelector('[role=tabpanel] #{axis}-axis-selector')", axis).click()  # type: ignore[attr-defined]
    click(browser, "option", value)


def place(column: str) -> str:
    """JavaScript for the left edge of a column; NaN where there is none."""
    cell = f"[...document.querySelectorAll('.ag-header-cell')].find(c => c.getAttribute('col-id') === '{column}')"
    return f"({cell}?.getBoundingClientRect().left ?? NaN)"


def test_the_table_shows_each_job_with_what_was_run_and_its_figures(
    browser: webdriver.Chrome, addresses: dict[str, str], tmp_path: Path
) -> None:
    browser.get(addresses["runs"])
    see(browser, "document.querySelectorAll('.ag-center-cols-container .ag-row').length === 4", "4 rows")
    for job in JOBS:
        see(browser, f"document.body.innerText.includes('{job}')", f"the job {job}")
    browser.save_screenshot(str(tmp_path / "runs.png"))
    # the grid adds its headers one by one, in any order: what counts is where they stand
    for left, right in pairwise(FIRST_COLUMNS):
        see(browser, f"{place(left)} < {place(right)}", f"column {left} before {right}")


def test_the_compare_page_draws_parallel_coordinates_scatter_and_box_plot(
    browser: webdriver.Chrome, addresses: dict[str, str], tmp_path: Path
) -> None:
    browser.get(addresses["compare"])
    see(browser, "document.body.innerText.includes('Comparing 4 Runs from 1 Experiment')", "the comparison")
    axes = "[...document.querySelectorAll('.pcp-plot .axis-title')].map(t => t.textContent)"
    see(browser, f"{axes}.includes('policy') && {axes}", "parallel coordinates with policy as an axis")
    ticks = see(browser, "[...document.querySelectorAll('.pcp-plot .tick text')].map(t => t.textContent)", "ticks")
    assert {"fcfs", "fair_share"} <= set(ticks)  # type: ignore[call-overload]
    browser.save_screenshot(str(tmp_path / "parallel.png"))
    click(browser, "tab", "Scatter Plot")
    see(browser, f"{PLOT}?.data[0].x.length === 4", "a scatter plot of 4 runs")
    browser.save_screenshot(str(tmp_path / "scatter.png"))
    click(browser, "tab", "Box Plot")
    choose(browser, "x", "policy")
    choose(browser, "y", "latency/p99_ttft_ms")
    see(browser, f"{PLOT}?.data.every(trace => trace.type === 'box') && {PLOT}.data.length", "a box plot")
    browser.save_screenshot(str(tmp_path / "box.png"))


def test_the_chart_page_has_our_comparison_and_a_section_for_each_kind_of_figure(
    browser: webdriver.Chrome, addresses: dict[str, str], tmp_path: Path
) -> None:
    browser.get(addresses["charts"])
    area = "document.querySelector('[data-testid=experiment-view-compare-runs-chart-area]')"
    sections = ("comparison", "latency", "throughput", "fairness", "host", "device", "timeline")
    wanted = json.dumps(sections)
    see(
        browser,
        f"{area} && {wanted}.every(s => new RegExp(s + '\\\\s*\\\\(\\\\d+\\\\)').test({area}.innerText))",
        "sections",
    )
    see(browser, f"{area}.querySelectorAll('.scatterlayer .point').length === 4", "the scatter plot of 4 runs")
    see(browser, f"{area}.querySelectorAll('.parcoords').length > 0", "the parallel coordinates")
    browser.save_screenshot(str(tmp_path / "charts.png"))


def test_no_page_asked_anybody_else(browser: webdriver.Chrome, addresses: dict[str, str]) -> None:
    """After the tests above: pages and their scripts came from this machine."""
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"}
    assert any(url.startswith("http://127.0.0.1") for url in asked)
    assert [url for url in asked if url.startswith("http") and not url.startswith("http://127.0.0.1")] == []
