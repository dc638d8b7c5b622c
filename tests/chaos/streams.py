"""Clients of a cluster's front that read streamed completions while its processes are killed."""

import collections
import http.client
import json
import threading
import time

PROMPTS = ("The President", "We the People", "No Person shall", "The Congress may", "Each House", "Representatives")
MAX_TOKENS = 60


class Streams:
    """Asks for the same few completions again and again, sampled with fixed seeds. An answer that ends must be the
    undisturbed one, and one that is cut off must be its beginning."""

    def __init__(self, port, clients=2):
        self.port, self.clients = port, clients
        self.expected, self.threads = [], []
        self.count = collections.Counter()
        self.wrong = []
        self.over = threading.Event()

    def ask(self, which, timeout_s=20):
        """(text, how it ended: "whole", "cut", or an error)."""
        body = json.dumps({"model": "scribe", "prompt": PROMPTS[which], "max_tokens": MAX_TOKENS, "temperature": 0.8,
                           "seed": which + 1, "stream": True})
        text = ""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            reply = connection.getresponse()
            if reply.status != 200:
                return text, f"status {reply.status}"
            for line in reply:
                if not line.startswith(b"data: "):
                    continue
                if line.strip() == b"data: [DONE]":
                    return text, "whole"
                event = json.loads(line[6:])
                if "error" in event:
                    return text, "error in the stream"
                text += "".join(c["text"] for c in event["choices"])
            return text, "cut"
        except (OSError, ValueError, http.client.HTTPException):  # ValueError: half an event
            return text, "cut" if text else "no front"
        finally:
            connection.close()

    def learn(self, limit_s):
        """The undisturbed answers; False: nobody answers."""
        until = time.monotonic() + limit_s
        while len(self.expected) < len(PROMPTS) and time.monotonic() < until:
            text, how = self.ask(len(self.expected))
            if how == "whole" and text:
                self.expected.append(text)
            else:
                time.sleep(0.2)
        return len(self.expected) == len(PROMPTS)

    def start(self):
        self.threads = [threading.Thread(target=self.read_again_and_again, args=(i,)) for i in range(self.clients)]
        for t in self.threads:
            t.start()

    def read_again_and_again(self, which):
        while not self.over.is_set():
            which = (which + 1) % len(PROMPTS)
            text, how = self.ask(which)
            self.count[how] += 1
            expected = self.expected[which]
            if text != expected if how == "whole" else not expected.startswith(text):
                self.wrong.append(f"{PROMPTS[which]!r}, {how}: {text!r} instead of {expected!r}")
            self.over.wait(0.2)

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join()
