"""What the tests in a browser share: a cluster of real processes, the browser, and how to wait and to skip."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


try:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
except ImportError:
    skip("Debian's python3-selenium is not installed")


def until(what, seconds, holds):
    """The first true value of holds(), within so many seconds; fails with the last one."""
    end, last = time.monotonic() + seconds, None
    while time.monotonic() < end:
        try:
            last = holds()
        except Exception as e:  # an element that has just gone, a server that is starting
            last = e
        if last and not isinstance(last, Exception):
            return last
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within {seconds} s; last: {last!r}")


def check(holds, what):
    if not holds:
        raise AssertionError(what)


class Cluster:
    """A detached cluster, its dashboard, and the verbs."""

    def __init__(self, troupe, text):
        self.troupe = troupe
        self.dir = tempfile.mkdtemp(prefix="troupe-browser-")
        self.state = os.path.join(self.dir, "state")
        self.dashboard, self.port = None, 0
        file = self.write("cluster.yaml", text)
        said = subprocess.run([troupe, "up", file, "--state", self.state, "--detach"], check=True,
                              capture_output=True, text=True, timeout=90).stdout
        self.processes = {name: int(pid) for name, pid in re.findall(r"^(\S+) +process (\d+)$", said, re.M)}

    def write(self, name, text):
        path = os.path.join(self.dir, name)
        with open(path, "w") as f:
            f.write(text)
        return path

    def run(self, *words):
        return subprocess.run([self.troupe, *words, "--state", self.state, "--json"], capture_output=True, text=True,
                              timeout=60)

    def submit(self, text):
        file = self.write("job.yaml", text)
        done = self.run("submit", file)
        check(done.returncode == 0, f"submit: {done.stderr}")
        return json.loads(done.stdout)["jobs"][0]["job"]

    def front_url(self):
        with open(os.path.join(self.state, "front-1", "url")) as f:
            return f.read().strip()

    def start_dashboard(self):
        path = os.path.join(self.dir, "dashboard.out")
        with open(path, "w") as out:
            self.dashboard = subprocess.Popen([self.troupe, "dashboard", "--state", self.state, "--port",
                                               str(self.port), "--json"], stdout=out)
        url = until("the dashboard's address", 20, lambda: json.load(open(path))["url"])
        self.port = int(url.rsplit(":", 1)[1].strip("/"))
        return url

    def stop_dashboard(self):
        if self.dashboard:
            self.dashboard.terminate()
            self.dashboard.wait(20)
            self.dashboard = None

    def down(self):
        self.run("down")

    def end(self):
        self.stop_dashboard()
        self.down()
        shutil.rmtree(self.dir, ignore_errors=True)


def browser(*more, **capabilities):
    """Headless Chromium, with more command line arguments; skips the test where it is not installed."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        skip("Debian's chromium and chromium-driver are not installed")
    o = webdriver.ChromeOptions()
    o.binary_location = chromium
    for a in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
              "--disable-background-networking", "--disable-component-update", "--no-first-run", *more):
        o.add_argument(a)
    for name, value in capabilities.items():
        o.set_capability(f"goog:{name}", value)
    return webdriver.Chrome(service=Service(driver), options=o)


def run(main):
    """Runs a test's main(); a failed check is one line and exit status 1."""
    try:
        main()
    except AssertionError as e:
        print(f"FAILED: {e}", file=sys.stderr)
        sys.exit(1)
