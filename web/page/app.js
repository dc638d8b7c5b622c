import { showCluster, showLinks } from "/page/cluster.js";
import { byId, setText } from "/page/dom.js";
import { showJobs } from "/page/jobs.js";
import { showServing } from "/page/serving.js";
import { duration } from "/page/text.js";
import { showTrainings } from "/page/training.js";

// Events come by fetch, not by EventSource, which could not send a key.

const retry_ms = 1000, silence_ms = 8000;
let key = sessionStorage.getItem("troupe-key") ?? "";

const headers = () => (key ? { Authorization: `Bearer ${key}` } : {});

/// A document, or null if there is none.
export async function ask(path) {
  try {
    const answer = await fetch(`/api/v1/${path}`, { headers: headers() });
    return answer.ok ? await answer.json() : null;
  } catch {
    return null;
  }
}

function say(kind, text, trouble) {
  const status = byId("status");
  status.className = `pill ${kind}`;
  setText(status, text);
  byId("trouble").hidden = !trouble;
  setText(byId("trouble"), trouble ?? "");
  document.body.classList.toggle("stale", kind !== "good");
}

function show(event) {
  const { source } = event;
  if (!source.present)
    return say("bad", "controller absent",
      `The controller does not answer${source.since_s > 1 ? `, for ${duration(Math.floor(source.since_s))} now` : ""}: ` +
      `${source.reason}. What is below is as it was.`);
  say("good", "live");
  setText(byId("name"), event.cluster.name || "Troupe");
  document.title = `${event.cluster.name || "cluster"} - Troupe`;
  showCluster(event.cluster, event.links.links);
  showLinks(event.links.links);
  showJobs(event.jobs, ask);
  showServing(event.serving);
  showTrainings(event.jobs.jobs, ask);
}

/// Reads events until the stream ends or is silent.
async function follow() {
  const quiet = new AbortController();
  let timer = setTimeout(() => quiet.abort(), silence_ms);
  try {
    const answer = await fetch("/api/v1/events", { headers: headers(), signal: quiet.signal });
    if (answer.status === 401) return "key";
    if (!answer.ok) return "refused";
    byId("key-form").hidden = true;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return "ended";
      clearTimeout(timer);
      timer = setTimeout(() => quiet.abort(), silence_ms);
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      if (events.length) show(JSON.parse(events.at(-1).slice("data: ".length)));
    }
  } finally {
    clearTimeout(timer);
  }
}

async function run() {
  for (;;) {
    let why = "ended";
    try {
      why = await follow();
    } catch {
      why = "ended";
    }
    if (why === "key") {
      say("bad", "locked", key ? "That key is not known here." : null);
      byId("key-form").hidden = false;
      await new Promise((go) => byId("key-form").addEventListener("submit", go, { once: true }));
      continue;
    }
    say("bad", "reconnecting",
      "The dashboard cannot be reached; this page tries again every second. What is below is as it was.");
    await new Promise((go) => setTimeout(go, retry_ms));
  }
}

byId("key-form").addEventListener("submit", (e) => {
  e.preventDefault();
  key = byId("key").value;
  sessionStorage.setItem("troupe-key", key);
});
run();
