#!/usr/bin/env python3
"""Can a page of a web site use this machine's servers through the browser? Headless Chromium takes evil.example for this
machine, as after DNS rebinding, and a page of that origin asks `troupe serve`, a cluster's front and the dashboard; then
a page of another origin sends them a prompt of its own. The control server has no checks: there the same requests must
succeed, or the test would prove nothing.

Needs Debian's chromium, chromium-driver and python3-selenium; without them it is skipped (77)."""

import argparse
import http.server
import json
import os
import subprocess
import threading
import urllib.request

from harness import Cluster, browser, check, run, until

CLUSTER = """name: foreign
datacenters:
  - name: here
    nodes:
      - {name: here-1, gpu: T4, gpus: 1, intra: pcie3, inter: eth10}
fronts:
  - {name: front-1, datacenter: here}
settings: {heartbeat_s: 0.2, lease_s: 3, restart_s: 1}
"""

SERVING = """name: scribe
serve: {model: MODEL, kv_gb: 0.1, context: 512}
"""

PROMPT = {"model": "scribe", "prompt": "The President", "max_tokens": 1}

# Runs in a page: the status and text of a request to the page's own origin.
READ = """const [path, done] = arguments;
fetch(path).then(async (a) => done({status: a.status, text: await a.text()}), (e) => done({status: 0, text: `${e}`}));"""

POST = """const [path, body, done] = arguments;
fetch(path, {method: 'POST', headers: {'Content-Type': 'application/json'}, body})
    .then(async (a) => done({status: a.status, text: await a.text()}), (e) => done({status: 0, text: `${e}`}));"""

# Runs in a page of another origin: a request that browsers send without asking the server first. Its answer cannot be
# read; what counts is whether the server has acted.
SEND = """const [url, body, done] = arguments;
fetch(url, {method: 'POST', mode: 'no-cors', body: new TextEncoder().encode(body)})
    .then(() => done('sent'), (e) => done(`${e}`));"""


class Control(http.server.ThreadingHTTPServer):
    """Answers like the servers, to everybody."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answers)
        self.prompts = 0
        threading.Thread(target=self.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Answers(http.server.BaseHTTPRequestHandler):
    def answer(self, text, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_GET(self):
        if self.path == "/page":
            return self.answer("<!doctype html><title>a page</title>", "text/html")
        self.answer('{"data": [{"id": "scribe"}]}')

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.prompts += 1
        self.answer('{"choices": [{"text": "answer"}]}')

    def log_message(self, *_):
        pass


def port_of(url):
    return int(url.rstrip("/").rsplit(":", 1)[1])


def get(url, path):
    with urllib.request.urlopen(url.rstrip("/") + path, timeout=10) as answer:
        return answer.read().decode()


def post(url):
    request = urllib.request.Request(url.rstrip("/") + "/v1/completions", json.dumps(PROMPT).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.status == 200


def generated(url):
    """The tokens that a server has generated; each prompt here asks for one."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in get(url, "/metrics").splitlines()
               if line.startswith("troupe_generation_tokens_total"))


def rebound(page, url, path):
    """What a page reads whose name now leads to this machine."""
    page.get(f"http://evil.example:{port_of(url)}/")
    check(page.execute_script("return location.host") == f"evil.example:{port_of(url)}", "the page's origin")
    return page.execute_async_script(READ, path)


def check_rebinding(page, url, path, secret):
    check(secret in get(url, path), f"{url}{path} says {secret} to this machine")
    seen = rebound(page, url, path)
    check(seen["status"] == 403 and secret not in seen["text"], f"{url}{path} answers a foreign Host: {seen}")
    check(secret not in page.page_source, f"{url} shows {secret} to a foreign Host")


def check_prompts(page, control, url):
    """Neither a rebound page nor one of another origin makes the server compute."""
    check(post(url), f"{url} completes a prompt of this machine")
    before = generated(url)
    rebound(page, url, "/health")
    seen = page.execute_async_script(POST, "/v1/completions", json.dumps(PROMPT))
    check(seen["status"] == 403, f"{url} completes a prompt under a foreign Host: {seen}")
    page.get(f"http://evil.example:{control.server_port}/page")
    page.execute_async_script(SEND, f"http://localhost:{port_of(url)}/v1/completions", json.dumps(PROMPT))
    check(post(url), "one more of this machine")
    check(generated(url) == before + 1, f"{url} has completed a foreign page's prompt")


def check_control(page, control):
    seen = rebound(page, control.url, "/v1/models")
    check(seen["status"] == 200 and "scribe" in seen["text"], f"the control server is read by the same page: {seen}")
    check(page.execute_async_script(POST, "/v1/completions", json.dumps(PROMPT))["status"] == 200 and
          control.prompts == 1, "and used by it")
    other = Control()
    page.get(f"http://evil.example:{other.server_port}/page")
    page.execute_async_script(SEND, f"http://localhost:{control.server_port}/v1/completions", json.dumps(PROMPT))
    check(control.prompts == 2, "and used by a page of another origin")
    other.shutdown()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--troupe", required=True)
    p.add_argument("--configs", required=True)
    o = p.parse_args()
    model = os.path.join(o.configs, "models/scribe")
    page, control, cluster, server = browser("--host-resolver-rules=MAP evil.example 127.0.0.1"), Control(), None, None
    page.set_script_timeout(20)
    try:
        check_control(page, control)
        cluster = Cluster(o.troupe, CLUSTER)
        cluster.submit(SERVING.replace("MODEL", model))
        path = cluster.write("serve.out", "")
        with open(path, "w") as out:
            server = subprocess.Popen([o.troupe, "serve", model, "--port", "0", "--json"], stdout=out)
        alone = until("the server's address", 20, lambda: json.load(open(path))["url"])
        front, dashboard = cluster.front_url(), cluster.start_dashboard()
        until("the cluster serves", 30, lambda: post(front))
        for url in alone, front:
            check_rebinding(page, url, "/v1/models", "scribe")
            check_rebinding(page, url, "/metrics", "troupe_")
            check_prompts(page, control, url)
        check_rebinding(page, dashboard, "/api/v1/jobs", "scribe")
        check_rebinding(page, dashboard, "/metrics", "troupe_")
        check_rebinding(page, dashboard, "/", "<script")
    finally:
        page.quit()
        if server:
            server.terminate()
            server.wait(20)
        if cluster:
            cluster.end()
    print("all checks passed")


if __name__ == "__main__":
    run(main)
