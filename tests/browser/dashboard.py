#!/usr/bin/env python3
"""The dashboard in headless Chromium, over a cluster of real processes with a training that lends its bubbles to a
served model, programs and a queue.

Needs Debian's chromium, chromium-driver and python3-selenium; without them it is skipped (77). Leaves the pictures
dashboard-{wide,narrow,dark}.png. Ends with 1 if a check fails."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

from harness import Cluster, browser, check, run, until
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

LEASE_S = 3
WAITING = "waits"

CLUSTER = f"""name: browser
datacenters:
  - name: here
    nodes:
      - {{name: here-1, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}}
      - {{name: here-2, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}}
      - {{name: here-3, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}}
  - name: there
    nodes:
      - {{name: there-1, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}}
      - {{name: there-2, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}}
wan:
  - {{between: [here, there], rtt_ms: 20, node_gbps: 5, connection_gbps: 0.586, emulate: true}}
fronts:
  - {{name: front-1, datacenter: here}}
settings: {{heartbeat_s: 0.2, lease_s: {LEASE_S}, restart_s: 1}}
"""

TRAINING = """name: tiny
model: {name: tiny-bytes, family: gpt, hidden: 64, layers: 4, heads: 4, sequence: 64, vocabulary: 256}
global_batch: 16
iterations: 100000
train: {data: DATA, seed: 1, learning_rate: 3e-3}
pipeline: {stages: 2, data_parallel: 1, microbatches: 4, stages_per_datacenter: 1,
  bubbles: {model: MODEL, memory_gb: 1}}
"""

SERVING = """name: scribe
serve: {model: MODEL, kv_gb: 0.1, context: 512, ttft_s: 5}
"""

PROGRAM = """name: "NAME"
model: MODEL
global_batch: 4
gpus: 1
command: [sleep, "600"]
"""


# The newest iteration changes faster than a test can compare: the page's own answers are kept, by iteration.
KEEP_TIMELINES = """window.timelines = {};
const plain = window.fetch;
window.fetch = async (...what) => {
  const answer = await plain(...what);
  if (String(what[0]).endsWith('/timeline'))
    answer.clone().json().then((d) => { window.timelines[d.iteration] = d; });
  return answer;
};"""


class Page:
    """The browser."""

    def __init__(self):
        self.driver = browser(loggingPrefs={"browser": "ALL", "performance": "ALL"})
        self.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": KEEP_TIMELINES})
        self.resize(1280, 900)

    def resize(self, width, height):
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                    dict(width=width, height=height, deviceScaleFactor=1, mobile=False))

    def dark(self, on):
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if on else "light"}]})

    def all(self, testid):
        return self.driver.find_elements(By.CSS_SELECTOR, f"[data-testid={testid}]")

    def one(self, testid):
        return self.all(testid)[0]

    def js(self, code):
        return self.driver.execute_script("return " + code)

    def picture(self, path, width):
        height = self.js("document.documentElement.scrollHeight")
        self.resize(width, height)
        time.sleep(1.2)  # the next event draws it at this size
        self.driver.save_screenshot(path)

    def errors(self):
        return [e["message"] for e in self.driver.get_log("browser") if e["level"] == "SEVERE"]

    def requests(self):
        all_messages = (json.loads(e["message"])["message"] for e in self.driver.get_log("performance"))
        return [m["params"]["request"]["url"] for m in all_messages if m["method"] == "Network.requestWillBeSent"]


def api(url, path):
    with urllib.request.urlopen(url + path, timeout=10) as answer:
        return answer.read().decode()


def check_nodes_and_queue(page, cluster, waiting):
    until("all nodes are shown as present", 10, lambda: len(page.all("node")) == 5 and all(
        n.get_attribute("data-present") == "true" for n in page.all("node")))
    check({n.get_attribute("data-node") for n in page.all("node")} == {"here-1", "here-2", "here-3", "there-1", "there-2"},
          "names")

    def same_sentence():
        said = json.loads(cluster.run("explain", str(waiting)).stdout)["reason"]
        return said and page.one("why").text == said

    until("the queued job with the sentence of `troupe explain`", 15, same_sentence)
    row = page.one("queued-job")
    check(row.get_attribute("data-job") == str(waiting), "the queued job's number")
    check(row.find_element(By.CSS_SELECTOR, "[data-testid=job-name]").text == WAITING, "the name is text")
    check(page.js("document.images.length") == 0, "no image was made of a name")
    # All GPUs are held: each datacenter's ring is drawn as a whole, so its length is near that of its circle.
    rings = lambda: page.js("""[...document.querySelectorAll('g.site')].map((g) => {
        const held = g.querySelector('path.held'), all = 2 * Math.PI * g.querySelector('circle.ring').r.baseVal.value;
        return held ? held.getTotalLength() / all : 0;
    })""")
    until("whole rings where all GPUs are held", 15, lambda: len(rings()) == 2 and min(rings()) > 0.98)


def check_training(page, url, job):
    points = lambda: int(page.one("loss-curve").get_attribute("data-points"))
    until("a loss curve", 30, lambda: points() >= 3)
    before = points()
    until("the loss curve grows", 3, lambda: points() > before)
    iterations = lambda: len(json.loads(api(url, f"api/v1/jobs/{job}/training?after=0"))["iterations"])

    def as_many():
        low = iterations()
        time.sleep(1.5)
        seen = points()
        return low <= seen <= iterations()

    until("as many points as iterations", 15, as_many)
    rows = until("two rows of the timeline", 10, lambda: len(page.all("timeline-row")) == 2 and page.all("timeline-row"))
    check({r.get_attribute("data-node")[:-2] for r in rows} == {"here", "there"}, "a row of each datacenter")
    # At once: the next iteration replaces what rows show.
    shown = page.js("""[...document.querySelectorAll('[data-testid=timeline-row]')].map(
        (r) => [...r.querySelectorAll('rect.span')].flatMap((s) => [...s.classList]))""")
    for kinds in shown:
        check({"forward", "backward", "update"} <= set(kinds), f"what a row shows: {kinds}")
    chart = page.one("loss-curve")
    chart.send_keys(Keys.HOME)
    until("the arrow keys show an iteration", 5, lambda: page.js("document.getElementById('tip').textContent").startswith(
        "iteration 1:"))
    chart.send_keys(Keys.ESCAPE)
    until("traffic between the datacenters", 10, lambda: any(
        l["bytes"] for l in json.loads(api(url, "api/v1/links"))["links"]))
    check(len(page.all("link")) == 2, "both directions of the link")


class Prompts:
    """Completes prompts through the front, one after the other, until it is told to stop."""

    def __init__(self, url):
        self.url, self.answered, self.stop = url, 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while not self.stop.is_set():
            body = json.dumps({"model": "scribe", "prompt": "The President of the United States " * 6, "max_tokens": 2})
            request = urllib.request.Request(self.url + "/v1/completions", body.encode(), {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=20) as answer:
                    self.answered += answer.status == 200
            except OSError:
                time.sleep(0.2)  # it does not serve yet

    def end(self):
        self.stop.set()
        self.thread.join(30)


def check_serving(page, url, job, front):
    prompts = Prompts(front)
    try:
        until("a prompt is answered", 30, lambda: prompts.answered > 3)
        until("the decoder, with its pages", 10, lambda: "of" in page.one("decoder").text)
        check(page.one("front").get_attribute("data-present") == "true", "the front is present")

        def prefills():
            known, drawn = page.js("""(() => {
                const d = window.timelines[document.querySelector('[data-iteration]').dataset.iteration];
                const spans = d.rows.flatMap((r) => r.spans).filter((s) => s.what === 'prefill');
                return [spans.length, document.querySelectorAll('[data-testid=timeline-row] rect.prefill').length];
            })()""")
            return known > 0 and (known, drawn)

        known, drawn = until("prefills in the timeline", 30, prefills)
        check(known == drawn, f"{drawn} prefills are drawn, and the API has {known}")
        used = json.loads(api(url, f"api/v1/jobs/{job}/training?after=0"))["bubbles"]
        check(used["guest_steps"] > 0 and used["guest_s"] <= used["idle_s"], f"what bubbles were used for: {used}")
    finally:
        prompts.end()
    finished = lambda: json.loads(api(url, "api/v1/serving"))["fronts"][0]["finished"]
    until("the front's completions", 5, lambda: finished() == prompts.answered)
    until("which the page shows", 5, lambda: f"{prompts.answered} finished" in page.one("front").text)


def check_metrics(url):
    text = api(url, "metrics")
    for name in ("troupe_up", "troupe_jobs", "troupe_gpus", "troupe_queue_seconds", "troupe_decisions_total",
                 "troupe_training_loss", "troupe_training_iteration_seconds", "troupe_device_busy_seconds_total",
                 "troupe_wan_bytes_total", "troupe_kv_pages", "troupe_sequences", "troupe_guest_seconds_total",
                 "troupe_bubble_seconds_total"):
        check(f"\n{name}{{" in text, f"{name} is missing")
    if not shutil.which("promtool"):
        return print("not checked: promtool is not installed (Debian's package prometheus)")
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True)
    check(done.returncode == 0, f"promtool: {done.stdout}{done.stderr}")
    print("promtool check metrics: exit 0")


def check_sizes(page, pictures):
    os.makedirs(pictures, exist_ok=True)
    page.picture(os.path.join(pictures, "dashboard-wide.png"), 1280)
    page.dark(True)
    page.picture(os.path.join(pictures, "dashboard-dark.png"), 1280)
    page.dark(False)
    page.resize(360, 640)
    time.sleep(1.2)
    check(page.js("document.documentElement.scrollWidth") <= 360, "no horizontal scrolling at 360 pixels")
    page.picture(os.path.join(pictures, "dashboard-narrow.png"), 360)
    page.resize(1280, 900)


def check_losses(page, cluster, url):
    victim = "here-2" if page.one("timeline-row").get_attribute("data-node") != "here-2" else "here-1"
    os.kill(cluster.processes[victim], signal.SIGKILL)
    until("the killed node is marked", LEASE_S + 2, lambda: page.driver.find_element(
        By.CSS_SELECTOR, f"[data-node={victim}]").get_attribute("data-present") == "false")
    check(not page.errors(), "console errors")
    cluster.stop_dashboard()
    until("the page says that the dashboard has gone", 5, lambda: page.one("status").text == "reconnecting")
    check(cluster.start_dashboard() == url, "the same address")
    until("the page comes back by itself", 6, lambda: page.one("status").text == "live")
    cluster.down()
    until("the page says that the controller has gone", 12, lambda: page.one("status").text == "controller absent")
    check("does not answer" in page.one("trouble").text, "and why")
    metrics = api(url, "metrics")
    check('troupe_up{host="controller"} 0' in metrics and "troupe_jobs" not in metrics, "metrics vanish")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--troupe", required=True)
    p.add_argument("--configs", required=True)
    p.add_argument("--pictures", required=True)
    o = p.parse_args()
    page = Page()
    cluster = Cluster(o.troupe, CLUSTER)
    try:
        data = os.path.join(o.configs, "data/founding.txt")
        program = PROGRAM.replace("MODEL", os.path.join(o.configs, "models/bert-large.yaml"))
        model = os.path.join(o.configs, "models/scribe")
        training = cluster.submit(TRAINING.replace("DATA", data).replace("MODEL", model))
        cluster.submit(SERVING.replace("MODEL", model))
        for i in range(2):
            cluster.submit(program.replace("NAME", f"program-{i}"))
        waiting = cluster.submit(program.replace("NAME", WAITING))
        url = cluster.start_dashboard()
        page.driver.get(url)
        until("the page is live", 15, lambda: page.one("status").text == "live")
        check_nodes_and_queue(page, cluster, waiting)
        check_training(page, url, training)
        check_serving(page, url, training, cluster.front_url())
        check_metrics(url)
        check_sizes(page, o.pictures)
        check_losses(page, cluster, url)
        outside = [r for r in page.requests() if not r.startswith(url) and not r.startswith("data:")]
        check(not outside, f"requests outside of the page's origin: {outside}")
    finally:
        page.driver.quit()
        cluster.end()
    print("all checks passed")


if __name__ == "__main__":
    run(main)
