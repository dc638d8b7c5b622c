#!/usr/bin/env python3
"""The HTML reports that verbs write, opened from the disk in headless Chromium: iterations of a training, GPUs in use,
cost against time. Skipped (77) like dashboard.py; leaves report-{iterations,usage,cost}.png."""

import argparse
import os
import shutil
import subprocess
import tempfile

from harness import browser, check, run, until
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys


def all_of(page, selector):
    return page.find_elements(By.CSS_SELECTOR, selector)


def tip(page):
    return page.execute_script("const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText")


def shows(page, element, key, text):
    """The tip of an element that has the focus, after a key."""
    page.execute_script("arguments[0].focus()", element)
    element.send_keys(key)
    until(f"a tip with {text!r}", 5, lambda: text in tip(page))
    element.send_keys(Keys.ESCAPE)


def opened(page, file, pictures, name):
    page.set_window_size(1400, 1000)
    page.get("file://" + file)
    until(f"{name} is drawn", 10, lambda: all_of(page, "main svg > *"))
    page.save_screenshot(os.path.join(pictures, f"report-{name}.png"))
    errors = [e["message"] for e in page.get_log("browser") if e["level"] == "SEVERE"]
    check(not errors, f"{name}: {errors}")
    page.set_window_size(500, 900)
    until(f"{name} fits into a narrow window", 5,
          lambda: page.execute_script("return document.documentElement.scrollWidth <= innerWidth"))
    page.set_window_size(1400, 1000)


def check_iterations(page):
    check(page.title == "figure6: varuna and atlas", page.title)
    headings = [h.text for h in all_of(page, "h2")]
    check(headings == ["(a) varuna: 38 slots, GPUs busy 40.4 %", "(b) atlas: 36 slots, GPUs busy 42.6 %"], headings)
    rows = all_of(page, "[data-testid=timeline-row]")
    check(len(rows) == 2 * 12 + 8 + 4, f"{len(rows)} rows")
    check(len(all_of(page, "rect.span.forward[data-span]")) == 2 * 6 * 2 * 4, "forwards")
    transfers = len(all_of(page, "rect.way0[data-span], rect.way1[data-span]"))
    check(transfers == 2 * 2 * 2 * 2 * 4, f"{transfers} transfers")
    check(len(all_of(page, "line.end-mark")) == len(rows), "each row has the iteration's end")
    shows(page, rows[0], Keys.SHIFT, "stage 0, dc1, pipeline 0")


def check_usage(page, policies):
    charts = all_of(page, "[data-testid=usage]")
    check(len(charts) == len(policies) and [h.text for h in all_of(page, "h2")] == [*policies, "Completion times"], "panels")
    shows(page, charts[0], Keys.HOME, "GPUs held")
    curves = all_of(page, "[data-testid=completion-times]")
    check(len(curves) == 1 and len(all_of(page, "[data-testid=completion-times] path.line")) == len(policies), "curves")
    shows(page, curves[0], Keys.END, "100.0 % of the jobs within")


def check_cost(page):
    plans = len(all_of(page, "[data-testid=plan]"))
    check(plans > 3 and len(all_of(page, "circle.plan")) == plans, f"{plans} plans")
    check(all_of(page, "circle.plan.outside") and all_of(page, "path.limit"), "the job's limit")
    shows(page, all_of(page, "[data-testid=cost]")[0], Keys.HOME, " in ")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--troupe", required=True)
    p.add_argument("--configs", required=True)
    p.add_argument("--pictures", required=True)
    o = p.parse_args()
    os.makedirs(o.pictures, exist_ok=True)
    config = lambda name: os.path.join(o.configs, name)
    directory, page = tempfile.mkdtemp(prefix="troupe-browser-"), browser(loggingPrefs={"browser": "ALL"})
    file = lambda name: os.path.join(directory, name)
    troupe = lambda *words: subprocess.run([o.troupe, *words, "--json"], check=True, capture_output=True, timeout=120)
    try:
        troupe("train", config("jobs/figure6.yaml"), "--schedule", "varuna", "--against", "atlas", "--picture", file("a.html"))
        opened(page, file("a.html"), o.pictures, "iterations")
        check_iterations(page)
        troupe("simulate", "--cluster", config("clusters/frenzy-sim.yaml"), "--trace", config("traces/philly-day.csv"),
               "--policy", "fcfs,sia", "--out", directory)
        opened(page, file("usage.html"), o.pictures, "usage")
        check_usage(page, ["fcfs", "sia"])
        troupe("plan", config("jobs/llama-1.3b-slo.yaml"), "--cluster", config("clusters/espresso.yaml"), "--policy", "espresso",
               "--time-limit", "3", "--pareto", file("cost.html"))
        opened(page, file("cost.html"), o.pictures, "cost")
        check_cost(page)
    finally:
        page.quit()
        shutil.rmtree(directory, ignore_errors=True)
    print("all checks passed")


if __name__ == "__main__":
    run(main)
