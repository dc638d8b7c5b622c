import { el, hideTip, keyed, setText, showTip, svg } from "/page/dom.js";
import { duration } from "/page/text.js";

// A row for each stage and pipeline: what its GPU did in an iteration. Transfers over the WAN, which
// keep no GPU busy, are thin lines below, or fill a row of their link. The data has the kinds of tasks.

const row_height = 22, bar = 15;

const percent = (s, length) => `${((100 * s) / length).toFixed(3)}%`;

function busyShare(row, length) {
  const busy = row.spans.filter((s) => s.kind.on_device)
    .reduce((sum, s) => sum + Math.max(0, Math.min(s.end_s, length) - Math.max(s.begin_s, 0)), 0);
  return length > 0 ? Math.min(1, busy / length) : 0;
}

export function withKinds(d) {
  const kinds = new Map(d.kinds.map((k) => [k.what, k]));
  return { ...d, rows: d.rows.map((r) => ({ ...r, spans: r.spans.map((s) => ({ ...s, kind: kinds.get(s.what) })) })) };
}

function describe(s) {
  const number = !s.kind.number ? "" : s.kind.number === "prompt" ? ` of prompt ${s.microbatch}` : `, ${s.kind.number} ${s.microbatch}`;
  return s.what + number + (s.pipeline === undefined ? "" : `, pipeline ${s.pipeline}`);
}

// An iteration counts from where the one before it ended; the first stages begin theirs earlier, while that still runs.
function fromEarliest(d) {
  const early = Math.max(0, -Math.min(0, ...d.rows.flatMap((r) => r.spans.map((s) => s.begin_s))));
  const moved = (s) => ({ ...s, begin_s: s.begin_s + early, end_s: s.end_s + early });
  return { length_s: d.length_s + early, rows: d.rows.map((r) => ({ ...r, spans: r.spans.map(moved) })) };
}

const upright = (x, kind) => svg("line", { x1: x, x2: x, y1: 0, y2: row_height, class: kind });

/// A micro-batch's number, or the name of a task that has none; a prompt's number means nothing to readers.
const labelOf = (s) => (s.kind.number === "prompt" ? "" : s.kind.number ? String(s.microbatch) : s.what);

/// refresh([row, scale, moved]): row: {name, title, spans, link, end}; scale: {length, amount, ticks}, in the unit of spans
/// (begin_s and end_s are in the unit that amount(n) prints); moved: is it to be drawn again?
export function timelineRow() {
  const name = el("span", { class: "row-name" });
  const picture = svg("svg", { width: "100%", height: row_height, "aria-hidden": true });
  const node = el("div", { class: "row", tabindex: 0, "data-testid": "timeline-row", role: "listitem" }, name, picture);
  let row = null, length = 1, amount = duration;

  const thin = (s) => !s.kind.on_device && !row.link;
  const lines = () => {
    const by = new Map();
    for (const s of row.spans) by.set(s.what, (by.get(s.what) ?? 0) + s.end_s - s.begin_s);
    const end = row.end ?? length;
    return [row.title, ...(row.link ? [] : [`busy ${(100 * busyShare(row, end)).toFixed(0)} % of ${amount(end)}`]),
      ...[...by].map(([what, s]) => `${what} ${amount(s)}`)];
  };
  picture.addEventListener("pointermove", (e) => {
    const s = row.spans[e.target.dataset?.span];
    const at = ((e.clientX - picture.getBoundingClientRect().x) / picture.clientWidth) * length;
    showTip(s ? [describe(s), `${amount(s.end_s - s.begin_s)} from ${amount(Math.max(0, s.begin_s))}`]
      : [`idle at ${amount(Math.max(0, at))}`, ...lines().slice(0, 2)], e.clientX, e.clientY);
  });
  picture.addEventListener("pointerleave", hideTip);
  node.addEventListener("focus", () => {
    const box = node.getBoundingClientRect();
    showTip(lines(), box.x + 40, box.bottom - 8);
  });
  node.addEventListener("blur", hideTip);

  return {
    node,
    refresh([r, scale, moved]) {
      if (!moved) return;
      row = r;
      ({ length, amount = duration } = scale);
      setText(name, r.name);
      node.dataset.node = r.node ?? "";
      node.dataset.spans = r.spans.length;
      node.setAttribute("aria-label", lines().join("; "));
      const width = picture.clientWidth || 600, end = r.end ?? length;
      const parts = [svg("rect", { x: 0, y: 1, width: percent(end, length), height: bar, class: r.link ? "way" : "idle", rx: 2 })];
      for (const t of scale.ticks ?? []) parts.push(upright(percent(t, length), "grid"));
      r.spans.forEach((s, i) => {
        const begin = Math.max(0, s.begin_s), until = Math.min(length, s.end_s);
        if (until <= begin) return;
        parts.push(svg("rect", { x: percent(begin, length), width: percent(until - begin, length), y: thin(s) ? bar + 3 : 1,
          height: thin(s) ? 3 : bar, class: `span ${r.link ? `way${s.pipeline % 2}` : s.what}`, "data-span": i }));
        const text = labelOf(s);
        if (!thin(s) && text && ((until - begin) / length) * width > 4 + 7 * text.length)
          parts.push(svg("text", { x: percent((begin + until) / 2, length), y: 12, class: s.kind.number ? "batch" : "batch task" }, text));
      });
      if (r.end !== undefined) parts.push(upright(percent(end, length), "end-mark"));
      picture.replaceChildren(...parts);
    },
  };
}

export const legendKey = (kind, text) => el("span", { class: "key" },
  svg("svg", { width: 12, height: 12, "aria-hidden": true }, svg("rect", { width: 12, height: 12, rx: 2, class: `span ${kind}` })), text);

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
      const titled = (r) => ({ ...r, name: `${r.node} \u00b7 ${r.devices.join(",")}`,
        title: `${r.node}, GPU ${r.devices.join(", ")}: stage ${r.stage} of pipeline ${r.pipeline}` });
      keyed(rows, all.rows.map((r) => [titled(r), { length: all.length_s }, moved]), ([r]) => `${r.pipeline}/${r.stage}`, timelineRow);
      const present = new Set(d.rows.flatMap((r) => r.spans.map((s) => s.what)));
      const kinds = d.kinds.filter((k) => present.has(k.what)).sort((a, b) => b.on_device - a.on_device);
      const shown_kinds = kinds.map((k) => k.what).join();
      if (legend.dataset.kinds === shown_kinds) return;
      legend.dataset.kinds = shown_kinds;
      legend.replaceChildren(...[...kinds, { what: "idle", on_device: true }]
        .map((k) => legendKey(k.what, k.on_device ? k.what : `${k.what} over the WAN`)));
    },
  };
}
