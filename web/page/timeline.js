import { duration, el, hideTip, keyed, setText, showTip, svg } from "/page/dom.js";

// A row for each stage and pipeline: what its GPU did in an iteration. Transfers over the WAN, which
// keep no GPU busy, are thin lines below. The server says which kinds of tasks there are.

const row_height = 22, bar = 15;

const percent = (s, length) => `${((100 * s) / length).toFixed(3)}%`;

function busyShare(row, length) {
  const busy = row.spans.filter((s) => s.kind.on_device)
    .reduce((sum, s) => sum + Math.max(0, Math.min(s.end_s, length) - Math.max(s.begin_s, 0)), 0);
  return length > 0 ? Math.min(1, busy / length) : 0;
}

function withKinds(d) {
  const kinds = new Map(d.kinds.map((k) => [k.what, k]));
  return { ...d, rows: d.rows.map((r) => ({ ...r, spans: r.spans.map((s) => ({ ...s, kind: kinds.get(s.what) })) })) };
}

function describe(s) {
  if (!s.kind.number) return s.what;
  return s.kind.number === "prompt" ? `${s.what} of prompt ${s.microbatch}` : `${s.what}, ${s.kind.number} ${s.microbatch}`;
}

// An iteration counts from where the one before it ended; the first stages begin theirs earlier, while that still runs.
function fromEarliest(d) {
  const early = Math.max(0, -Math.min(0, ...d.rows.flatMap((r) => r.spans.map((s) => s.begin_s))));
  const moved = (s) => ({ ...s, begin_s: s.begin_s + early, end_s: s.end_s + early });
  return { length_s: d.length_s + early, rows: d.rows.map((r) => ({ ...r, spans: r.spans.map(moved) })) };
}

function timelineRow() {
  const name = el("span", { class: "row-name" });
  const picture = svg("svg", { width: "100%", height: row_height, "aria-hidden": true });
  const node = el("div", { class: "row", tabindex: 0, "data-testid": "timeline-row", role: "listitem" }, name, picture);
  let row = null, length = 1;

  const lines = () => {
    const by = new Map();
    for (const s of row.spans) by.set(s.what, (by.get(s.what) ?? 0) + s.end_s - s.begin_s);
    return [`${row.node}, GPU ${row.devices.join(", ")}: stage ${row.stage} of pipeline ${row.pipeline}`,
      `busy ${(100 * busyShare(row, length)).toFixed(0)} % of ${duration(length)}`,
      ...[...by].map(([what, s]) => `${what} ${duration(s)}`)];
  };
  picture.addEventListener("pointermove", (e) => {
    const s = row.spans[e.target.dataset?.span];
    const at = ((e.clientX - picture.getBoundingClientRect().x) / picture.clientWidth) * length;
    showTip(s ? [describe(s), `${duration(s.end_s - s.begin_s)} from ${duration(Math.max(0, s.begin_s))}`]
      : [`idle at ${duration(Math.max(0, at))}`, ...lines().slice(0, 2)], e.clientX, e.clientY);
  });
  picture.addEventListener("pointerleave", hideTip);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(lines(), box.x + 40, box.bottom - 8);
  });
  node.addEventListener("blur", hideTip);

  return {
    node,
    refresh([r, l, moved]) {
      if (!moved) return;
      row = r;
      length = l;
      setText(name, `${r.node} \u00b7 ${r.devices.join(",")}`);
      node.dataset.node = r.node;
      node.dataset.spans = r.spans.length;
      node.setAttribute("aria-label", lines().join("; "));
      const width = picture.clientWidth || 600;
      const parts = [svg("rect", { x: 0, y: 1, width: "100%", height: bar, class: "idle", rx: 2 })];
      r.spans.forEach((s, i) => {
        const thin = !s.kind.on_device;
        const begin = Math.max(0, s.begin_s), end = Math.min(length, s.end_s);
        if (end <= begin) return;
        parts.push(svg("rect", { x: percent(begin, length), width: percent(end - begin, length),
          y: thin ? bar + 3 : 1, height: thin ? 3 : bar, class: `span ${s.what}`, "data-span": i }));
        if (!thin && s.kind.number === "micro-batch" && ((end - begin) / length) * width > 16)
          parts.push(svg("text", { x: percent((begin + end) / 2, length), y: 12, class: "batch" }, String(s.microbatch)));
      });
      picture.replaceChildren(...parts);
    },
  };
}

export function timeline() {
  const about = el("p", { class: "soft" });
  const legend = el("p", { class: "legend" });
  const rows = el("div", { class: "timeline", role: "list", "data-testid": "timeline" });
  const node = el("div", {}, about, rows, legend);
  let shown = "";
  return {
    node,
    draw(given) {
      node.hidden = !given || given.rows.length === 0;
      if (node.hidden) return;
      const d = withKinds(given);
      const now = `${d.iteration} ${rows.clientWidth}`;
      const moved = now !== shown;
      shown = now;
      node.dataset.iteration = d.iteration;
      const share = (of) => d.rows.reduce((sum, r) => sum + busyShare({ spans: r.spans.filter(of) }, d.length_s), 0) / d.rows.length;
      const prefill = share((s) => s.kind.number === "prompt");
      setText(about, `Iteration ${d.iteration}: ${duration(d.length_s)}, GPUs busy ${(100 * share(() => true)).toFixed(0)} %` +
        (prefill > 0 ? `, ${(100 * prefill).toFixed(1)} % of it all with prefills in bubbles` : ""));
      const all = fromEarliest(d);
      keyed(rows, all.rows.map((r) => [r, all.length_s, moved]), ([r]) => `${r.pipeline}/${r.stage}`, timelineRow);
      const present = new Set(d.rows.flatMap((r) => r.spans.map((s) => s.what)));
      const kinds = d.kinds.filter((k) => present.has(k.what)).sort((a, b) => b.on_device - a.on_device);
      const named = [...kinds.map((k) => k.what), "idle"];
      if (legend.dataset.kinds !== named.join()) {
        legend.dataset.kinds = named.join();
        legend.replaceChildren(...[...kinds, { what: "idle", on_device: true }].map((k) => el("span", { class: "key" },
          svg("svg", { width: 12, height: 12, "aria-hidden": true }, svg("rect", { width: 12, height: 12, rx: 2, class: `span ${k.what}` })),
          k.on_device ? k.what : `${k.what} over the WAN`)));
      }
    },
  };
}
