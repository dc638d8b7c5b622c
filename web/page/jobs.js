import { byId, el, keyed, setText } from "/page/dom.js";
import { colour } from "/page/cluster.js";
import { iterationBar } from "/page/progress.js";
import { duration, number } from "/page/text.js";

const max_explained = 20, max_ended = 20, explain_every_ms = 2000;

// Without keys every user of the machine is "local".
const ownerOf = (j) => (j.owner && j.owner !== "local" ? `, ${j.owner}` : "");

const where = (j) => j.allocation.map((a) => `${a.gpus} of ${a.node}`).join(", ");

function title(j) {
  return [el("span", { class: `dot ${colour(j.job)}` }), el("span", { class: "job-name", "data-testid": "job-name" }, j.name),
    el("span", { class: "soft" }, ` job ${j.job}`)];
}

// Sentences by job, as `troupe explain` prints them.
const sentences = new Map();
let asked_at = -Infinity, asking = false;

async function explain(waiting, ask) {
  if (asking || performance.now() - asked_at < explain_every_ms) return;
  asking = true;
  for (const j of waiting.slice(0, max_explained)) {
    const e = await ask(`jobs/${j.job}/explain`);
    if (e) sentences.set(j.job, e.reason);
  }
  for (const job of sentences.keys())
    if (!waiting.some((j) => j.job === job)) sentences.delete(job);
  asked_at = performance.now();
  asking = false;
}

function queueRow(first) {
  const facts = el("span", { class: "soft" });
  const why = el("p", { class: "why", "data-testid": "why" });
  const node = el("li", { "data-testid": "queued-job", "data-job": first.job },
    el("div", { class: "line" }, ...title(first), facts), why);
  return {
    node,
    refresh(j) {
      setText(facts, ` waits ${duration(Math.floor(j.waited_s))}` + (j.priority ? `, priority ${j.priority}` : "") +
        ownerOf(j));
      setText(why, sentences.get(j.job) ?? j.waiting_reason ?? "");
    },
  };
}

function runningRow(first) {
  const facts = el("span", { class: "soft" });
  const bar = el("progress", { max: 1, "aria-label": "iterations" });
  const numbers = el("p", { class: "why" });
  const groups = el("p", { class: "why", "data-testid": "groups" });
  const node = el("li", { "data-testid": "running-job", "data-job": first.job },
    el("div", { class: "line" }, ...title(first), facts), bar, numbers, groups);
  return {
    node,
    refresh(j) {
      setText(facts, ` ${j.state === "stopping" ? "stops on" : "on"} ${where(j) || "-"}` +
        (j.merged_with.length ? `, merged with ${j.merged_with.join(", ")}` : "") +
        (j.attempts > 1 ? `, attempt ${j.attempts}` : "") + ownerOf(j));
      const reached = iterationBar(j);
      bar.hidden = !reached;
      bar.value = reached?.share ?? 0;
      const command = j.command.join(" ").slice(0, 200);
      const parts = reached ? [reached.text] : command ? [] : [j.model ? `model ${j.model}` : ""];
      if (command) parts.push(command);
      if (j.loss !== null) parts.push(`loss ${j.loss.toFixed(4)}`);
      if (j.tokens_per_s !== null) parts.push(`${number(Math.round(j.tokens_per_s))} tokens/s`);
      if (j.eta_s !== null) parts.push(`${duration(j.eta_s)} to go`);
      setText(numbers, parts.join(" - "));
      groups.hidden = j.groups.length === 0;
      setText(groups, j.groups.join("; "));
    },
  };
}

function endedRow(first) {
  const facts = el("span", { class: "soft" });
  const node = el("li", { "data-testid": "ended-job" }, el("div", { class: "line" }, ...title(first), facts));
  return {
    node,
    refresh(j) {
      setText(facts, ` ${j.state} after ${duration(j.ended_s - j.submitted_s)}` + (j.detail ? `: ${j.detail}` : ""));
    },
  };
}

export function showJobs({ jobs }, ask) {
  const waiting = jobs.filter((j) => j.state === "waiting");
  const running = jobs.filter((j) => j.state === "running" || j.state === "stopping");
  const ended = jobs.filter((j) => j.ended_s !== null).reverse();
  explain(waiting, ask);
  byId("no-queue").hidden = waiting.length > 0;
  byId("no-running").hidden = running.length > 0;
  setText(byId("queue-count"), waiting.length ? number(waiting.length) : "");
  setText(byId("running-count"), running.length ? number(running.length) : "");
  const failed = ended.filter((j) => j.state === "failed").length;
  setText(byId("ended-count"), ended.length ? number(ended.length) + (failed ? `, ${number(failed)} failed` : "") : "");
  keyed(byId("queue"), waiting.slice(0, 200), (j) => j.job, queueRow);
  keyed(byId("running"), running.slice(0, 200), (j) => j.job, runningRow);
  keyed(byId("ended"), ended.slice(0, max_ended), (j) => j.job, endedRow);
}
