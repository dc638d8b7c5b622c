import { lossChart } from "/page/chart.js";
import { colour } from "/page/cluster.js";
import { byId, el, keyed, setText } from "/page/dom.js";
import { duration, number, short } from "/page/text.js";
import { timeline } from "/page/timeline.js";

const max_shown = 6, none_again_ms = 3000;

// By job: what it has reported so far.
const histories = new Map();

/// Adds newer iterations; one that is not larger than an earlier one replaces it and all after it.
function append(history, newer) {
  const first = newer.iterations[0]?.iteration;
  if (first !== undefined)
    while (history.iterations.length && history.iterations.at(-1).iteration >= first) history.iterations.pop();
  const iterations = history.iterations.concat(newer.iterations);
  const events = history.events.concat(newer.events);
  Object.assign(history, newer, { iterations, events: events.slice(-50) });
}

async function read(job, ask) {
  const history = histories.get(job) ?? { iterations: [], events: [], position: 0, busy: false, again_at: 0 };
  histories.set(job, history);
  if (history.busy || performance.now() < history.again_at) return;
  history.busy = true;
  const newer = await ask(`jobs/${job}/training?after=${history.position}`);
  // A controller that has forgotten its history counts positions from 0 again.
  if (newer && newer.position < history.position) Object.assign(history, { iterations: [], events: [] });
  if (newer) append(history, newer);
  if (!newer || newer.reason) history.again_at = performance.now() + none_again_ms;
  else history.timeline = await ask(`jobs/${job}/timeline`);
  history.busy = false;
}

/// The use of its bubbles since it (re)started, and the cost of that to the training.
function lent(b) {
  const share = b.idle_s ? `, ${((100 * b.guest_s) / b.idle_s).toFixed(1)} % of ${duration(b.idle_s)} idle` : "";
  return [["prefills in bubbles", `${duration(b.guest_s)} in ${number(b.guest_steps)} steps${share}`],
    ["delayed by them", `${number(b.delayed_steps)} steps, ${duration(b.delay_s)} in all, at most ${duration(b.worst_delay_s)}` +
      (b.paused ? "; paused" : "")]];
}

function facts(j, h) {
  const last = h.iterations.at(-1);
  // The list of jobs above has the same two; a history that is being read is behind it.
  const now = j.loss !== null && j.iteration >= last.iteration ? j : last;
  const rows = [["loss", now.loss === null ? "not finite" : now.loss.toFixed(4)], ["iteration", `${number(now.iteration)} of ${number(j.iterations)}`],
    ["time", duration(last.end_s - last.begin_s) + (h.planned_s ? `, planned ${duration(h.planned_s)}` : "")]];
  if (h.tokens_per_s) rows.push(["tokens/s", number(Math.round(h.tokens_per_s))]);
  rows.push(["layout", `${h.stages} stage${h.stages > 1 ? "s" : ""} \u00d7 ${h.pipelines} pipeline${h.pipelines > 1 ? "s" : ""}, ` +
    `${h.microbatches} micro-batches`], ["schedule", h.schedule]);
  if (h.wan_bytes) rows.push(["WAN", `${(100 * h.wan_utilization).toFixed(1)} % of its links' rate`]);
  if (h.heals) rows.push(["healed", `${number(h.heals.count)} \u00d7, ${duration(h.heals.seconds)} in all`]);
  if (h.bubbles) rows.push(...lent(h.bubbles));
  if (h.saved) rows.push(["saved", `iteration ${number(h.saved)}`]);
  return rows;
}

function card(first) {
  const title = el("h3", {}, el("span", { class: `dot ${colour(first.job)}` }),
    el("span", { class: "job-name" }, first.name), el("span", { class: "soft" }, ` job ${first.job}`));
  const list = el("dl", { class: "facts" });
  const chart = lossChart(), picture = timeline();
  const events = el("ul", { class: "events" });
  const node = el("article", { class: "card training", "data-testid": "training", "data-job": first.job },
    title, el("div", { class: "two" }, chart.node, list), picture.node, events);
  let shown = "";
  return {
    node,
    refresh(j) {
      const h = histories.get(j.job);
      if (!h?.iterations.length) return;
      keyed(list, facts(j, h), ([k]) => k, ([k]) => {
        const value = el("dd");
        return { node: el("div", {}, el("dt", {}, k), value), refresh: ([, v]) => setText(value, v) };
      });
      const now = `${h.iterations.length} ${h.iterations.at(-1).iteration} ${chart.node.clientWidth}`;
      if (now !== shown) chart.draw(h.iterations);
      shown = now;
      picture.draw(h.timeline);
      keyed(events, h.events.slice(-3).map((text, i) => [i, text]), ([i, text]) => `${i} ${text}`,
        ([, text]) => ({ node: el("li", {}, text), refresh() {} }));
    },
  };
}

/// In place of the cards: why there is none.
function emptyText(wanted) {
  if (!wanted.length) return "No training runs.";
  // Its history is on its way from the controller.
  return wanted.some((j) => j.iteration > 0) ? "Reading." : "Starting: no training has reported an iteration yet.";
}

export function showTrainings(jobs, ask) {
  const able = jobs.filter((j) => j.command.length === 0);
  const running = able.filter((j) => j.state === "running" || j.state === "stopping");
  // One that has just ended, or was stopped, stays in sight.
  const before = able.filter((j) => !running.includes(j) && j.iteration > 0 && (j.loss !== null || histories.has(j.job)));
  const wanted = running.concat(before.slice(-Math.max(1, 2 - running.length))).slice(0, max_shown);
  for (const j of wanted) read(j.job, ask);
  for (const job of histories.keys())
    if (!wanted.some((j) => j.job === job)) histories.delete(job);
  const shown = wanted.filter((j) => histories.get(j.job)?.iterations.length);
  byId("no-trainings").hidden = shown.length > 0;
  setText(byId("no-trainings"), emptyText(wanted));
  keyed(byId("trainings"), shown, (j) => j.job, card);
}
