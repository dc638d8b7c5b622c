import { lineChart, tick, ticks } from "/page/chart.js";
import { byId, el, svg } from "/page/dom.js";
import { duration, sameCurves, short, stepsOf } from "/page/text.js";
import { legendKey, timelineRow, withKinds } from "/page/timeline.js";

// The reports that verbs write as files: one page, whose data is in it. It is opened from a disk and asks for nothing.

const data = JSON.parse(byId("data").textContent);
const redraws = [];

const plural = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
const legendOf = (...keys) => el("p", { class: "legend" }, keys);

function begin(title, heading, about) {
  document.title = title;
  byId("title").textContent = heading;
  byId("about").textContent = about;
}

function panel(title, text, ...parts) {
  return el("section", {}, el("h2", {}, title), text ? el("p", { class: "soft" }, text) : null, el("div", { class: "card" }, parts));
}

/// A chart that is drawn again whenever the window's width changes.
function charted(testid, drawing) {
  const chart = lineChart({ "data-testid": testid });
  redraws.push(() => chart.draw(drawing));
  return chart.node;
}

/// Ticks of whole numbers from 0, with the middle if that is one.
const countTicks = (high) => (high % 2 ? [0, high] : [0, high / 2, high]);

/// The unit of a page's times, and steps between ticks that people count in.
function timeUnit(span_s) {
  if (span_s > 10 * 86400) return { unit: "d", unit_s: 86400 };
  if (span_s > 5 * 3600) return { unit: "h", unit_s: 3600, steps: [1, 2, 3, 6, 12, 24, 48] };
  return span_s > 300 ? { unit: "min", unit_s: 60 } : { unit: "s", unit_s: 1 };
}

// GPUs in use and waiting jobs over time, for each policy of `troupe simulate`.

function usageChart(r, highest) {
  const { unit, unit_s, steps } = timeUnit(data.span_s);
  const at = (i) => ((i + 0.5) * data.span_s) / r.held.length / unit_s;
  return charted("usage", {
    x: { low: 0, high: data.span_s / unit_s, steps, title: `time since the first job, ${unit}` },
    axes: [{ low: 0, high: data.gpus, ticks: countTicks(data.gpus), title: "GPUs held", class: "used" },
      { low: 0, high: highest, ticks: countTicks(highest), title: "jobs waiting", class: "waiting" }],
    lines: [{ axis: 0, points: r.held.map((n, i) => [at(i), n]), class: "used", area: true },
      { axis: 1, points: r.waiting.map((n, i) => [at(i), n]), class: "waiting" }],
    stops: r.held.map((n, i) => ({ x: at(i), y: n, axis: 0, tip: [`${Number(at(i).toPrecision(3))} ${unit}`,
      `${n.toFixed(1)} of ${data.gpus} GPUs held`, `${plural(r.waiting[i], "job")} waiting`] })),
    label: `GPUs held and jobs waiting over time under ${r.policy}.`,
  });
}

function completionTimes() {
  const { unit, unit_s, steps } = timeUnit(Math.max(...data.policies.map((r) => r.jct_cdf.jct_s.at(-1) ?? 0), 1e-9));
  const curves = data.policies.map((r, i) => ({ class: `cdf${i % 8}`, policy: r.policy,
    values: r.jct_cdf.jct_s.map((s) => s / unit_s), fractions: r.jct_cdf.fraction,
  })).filter((c) => c.values.length);
  if (!curves.length) return [];
  const longest = Math.max(...curves.map((c) => c.values.at(-1)));
  // A curve below others is wider, so that it shows beside them where they run together.
  curves.forEach((c, i) => {
    c.points = stepsOf(c.values, c.fractions);
    c.width = 1.8 + Math.min(6, 2.2 * (curves.length - 1 - i));
  });
  const same = sameCurves(curves.map((c) => ({ name: c.policy, points: c.points })));
  return panel("Completion times", "The fraction of the finished jobs that took no longer." +
    (same.length ? ` The curves of ${same.join(", and those of ")} are the same.` : ""),
    charted("completion-times", {
      height: 260, x: { low: 0, high: longest || 1, steps, title: `completion time, ${unit}` }, axes: [{ low: 0, high: 1 }], lines: curves, plane: true,
      stops: curves.flatMap((c) => c.values.map((x, k) => ({ x, y: c.fractions[k], tip: [c.policy,
        `${(100 * c.fractions[k]).toFixed(1)} % of the jobs within ${duration(x * unit_s)}`] }))),
      label: `Completion times of finished jobs under ${curves.map((c) => c.policy).join(", ")}.`,
    }), legendOf(...curves.map((c) => legendKey(c.class, c.policy))));
}

function usage() {
  begin(`${data.cluster}: GPUs in use`, `Cluster ${data.cluster}: GPUs in use and jobs waiting`,
    `Simulated in virtual time on ${data.gpus} GPUs. All policies on the same scale.`);
  const longest_queue = Math.max(1, ...data.policies.flatMap((r) => r.waiting));
  const highest = tick(longest_queue, 1);
  return [...data.policies.map((r) => panel(r.policy,
    `average completion time ${duration(r.average_jct_s)}, of it queued ${duration(r.average_queue_s)}; ` +
    `${(100 * r.gpu_utilization).toFixed(0)} % of GPU time held; ${plural(r.failed, "job")} failed, ` +
    `${plural(r.oom_failures, "attempt")} ran out of memory`,
    usageChart(r, highest), legendOf(legendKey("used", "GPUs held"), legendKey("waiting", "jobs waiting")))), completionTimes()].flat();
}

// The cost of plans against their time: `troupe plan --pareto`.

function cost() {
  const { limits, plans } = data;
  begin(`${data.job} on ${data.cluster}: cost and time`, `${data.job} on ${data.cluster}: cost and time of ${data.iterations} iterations`,
    "Every plan is the cheapest of those that are at most as slow, by the closed form of the cost model." +
    (limits.time_s !== null || limits.cost !== null ? " Hollow: outside the job's limits (dashed)." : ""));
  const upTo = (values) => {
    const high = Math.max(...values), step = tick(high, 6);
    return step * Math.max(1, Math.ceil((high / step) * 1.0001));
  };
  const long = upTo(plans.map((p) => p.total_s)), dear = upTo(plans.map((p) => p.cost));
  // Up to the next faster plan, nothing costs less than that one.
  const stairs = plans.flatMap((p, i) => (i ? [[plans[i - 1].total_s, p.cost], [p.total_s, p.cost]] : [[p.total_s, p.cost]]));
  const headings = ["cost", "time", "iteration", "GPUs", "split", "within the limits"];
  const figure = (i) => ({ class: i < 3 ? "figure" : "" });
  const cells = (p) => [p.cost.toFixed(2), duration(p.total_s), duration(p.iteration_s), p.gpus, p.split, p.meets ? "yes" : "no"];
  return [el("div", { class: "card" }, charted("cost", {
    height: 380, x: { low: 0, high: long, title: "time for all iterations, s" }, axes: [{ low: 0, high: dear, title: "cost" }], plane: true,
    lines: [{ points: stairs }],
    dots: plans.map((p) => ({ x: p.total_s, y: p.cost, r: 5, class: p.meets ? "plan" : "plan outside" })),
    limits: [...(limits.time_s !== null && limits.time_s <= long ? [{ x: limits.time_s, title: `the job may take ${short(limits.time_s)} s` }] : []),
      ...(limits.cost !== null && limits.cost <= dear ? [{ y: limits.cost, title: `the job may cost ${short(limits.cost)}` }] : [])],
    stops: plans.map((p) => ({ x: p.total_s, y: p.cost, tip: [`${p.gpus}: ${p.cost.toFixed(2)} in ${duration(p.total_s)}`] })),
    label: `Cost against time of ${plural(plans.length, "plan")}.`,
  })), el("div", { class: "links" }, el("table", {}, el("thead", {}, el("tr", {}, headings.map((h, i) => el("th", figure(i), h)))),
    el("tbody", {}, plans.map((p) => el("tr", { "data-testid": "plan" }, cells(p).map((c, i) => el("td", figure(i), c)))))))];
}

// An iteration of a training under one or two schedules, as in Figure 6 of the ATLAS paper: `troupe train --picture`.

function axisRow(unit, scale) {
  const picture = svg("svg", { width: "100%", height: 18, "aria-hidden": true });
  scale.ticks.forEach((t) => picture.append(svg("text", { x: `${(100 * t) / scale.length}%`, y: 13,
    class: t === 0 ? "" : t > scale.length * 0.97 ? "end" : "middle" }, short(t))));
  return el("div", { class: "row axis" }, el("span", { class: "row-name" }, unit), picture);
}

function iterationPanel(given, letter, length) {
  const d = withKinds({ ...given, kinds: data.kinds });
  const amount = d.unit === "slot" ? (n) => plural(Number(n.toPrecision(6)), "slot") : (n) => `${Number(n.toPrecision(4))} ${d.unit}`;
  const scale = { length, amount, ticks: ticks(0, length, 10) };
  const list = el("div", { class: "timeline", role: "list" });
  let group = null;
  list.append(axisRow(d.unit === "slot" ? "slots" : d.unit, scale));
  for (const r of d.rows) {
    if (r.group !== group) list.append(el("h4", {}, r.group));
    group = r.group;
    const row = timelineRow();
    if (r.link) row.node.classList.add("link");
    list.append(row.node);
    redraws.push(() => row.refresh([{ ...r, title: `${r.name}, ${r.group}`, end: d.length }, scale, true]));
  }
  return panel(`(${letter}) ${d.schedule}: ${amount(d.length)}, GPUs busy ${(100 * d.busy).toFixed(1)} %`,
    d.gpus > d.shown ? `The first ${d.shown} of ${d.gpus} GPUs.` : null, list);
}

/// Spans are arrays, for size: [kind, pipeline, micro-batch, begin, end].
function unpacked(d) {
  const span = ([kind, pipeline, microbatch, begin_s, end_s]) => ({ what: data.kinds[kind].what, pipeline, microbatch, begin_s, end_s });
  return { ...d, rows: d.rows.map((r) => ({ ...r, spans: r.spans.map(span) })) };
}

function iterations() {
  const all = data.iterations.map(unpacked);
  begin(`${data.job}: ${all.map((d) => d.schedule).join(" and ")}`, `One iteration of ${data.job}`,
    `${data.device === "sim" ? "Simulated, in virtual time" : `Measured, on devices '${data.device}'`}. One row per GPU and per link ` +
    "direction; numbers are micro-batches, counted from 0 like stages and pipelines; all on the same time scale.");
  document.body.classList.add("pictures");
  const present = new Set(all.flatMap((d) => d.rows.flatMap((r) => r.spans.map((s) => s.what))));
  const keys = data.kinds.filter((k) => k.on_device && present.has(k.what)).map((k) => legendKey(k.what, k.what));
  const length = Math.max(1e-9, ...all.map((d) => d.length));
  return [legendOf(...keys, legendKey("way0", "transfer over the WAN (pipelines 0, 2, ...)"), legendKey("way1", "(pipelines 1, 3, ...)"),
    legendKey("idle", "idle")), el("div", { class: "panels" }, all.map((d, i) => iterationPanel(d, "abcdefgh"[i], length)))];
}

byId("main").append(...{ usage, cost, iterations }[data.kind]());
let drawn = 0;
// In the next frame: drawing changes heights, which an observer may not do itself.
new ResizeObserver(([main]) => requestAnimationFrame(() => {
  if (main.contentRect.width === drawn) return;
  drawn = main.contentRect.width;
  redraws.forEach((draw) => draw());
})).observe(byId("main"));
