import { el, hideTip, showTip, svg } from "/page/dom.js";
import { duration, short } from "/page/text.js";

// Lines over one x axis, with the values under the pointer, or under the arrow keys.

const top = 10;

/// The first of the steps, by default 1, 2 or 5 times a power of ten, that makes at most about n of a range.
export function tick(range, n, steps) {
  const rough = range / n, power = 10 ** Math.floor(Math.log10(rough));
  return (steps ?? [1, 2, 5, 10].map((m) => m * power)).find((step) => step >= rough * 0.999) ?? steps.at(-1);
}

export function ticks(from, to, n, steps) {
  if (!(to > from)) return [from];
  const step = tick(to - from, n, steps), all = [];
  for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-9) + 1e-12; ++i) all.push(i * step);
  return all;
}

/// draw({height, x, axes, lines, dots, limits, stops, plane, label}):
///   x: {low, high, whole, steps, title}; axes: one or two, left and right, of {low, high, ticks, title, class};
///   lines: {axis, points: [[x, y]], class, area, width}; dots: {x, y, class, r}; limits: {x or y, title}, dashed;
///   stops: {x, y, axis, tip}, what the pointer finds, by x, or if `plane` by both; label: for those who cannot see it.
export function lineChart(attributes = {}) {
  const node = el("div", { class: "chart", tabindex: 0, role: "img", ...attributes });
  let stops = [], plane = false, place = null, at = -1, cross = null;

  function point(i, clientX, clientY) {
    at = Math.max(0, Math.min(stops.length - 1, i));
    const s = stops[at];
    if (!s || !place) return;
    const x = place.x(s.x), y = place.y(s.y, s.axis);
    cross.setAttribute("transform", `translate(${x} ${y})`);
    cross.setAttribute("visibility", "visible");
    const box = node.getBoundingClientRect();
    showTip(s.tip, clientX ?? box.x + x, clientY ?? box.y + y);
  }
  function leave() {
    at = -1;
    cross?.setAttribute("visibility", "hidden");
    hideTip();
  }
  node.addEventListener("pointermove", (e) => {
    if (!stops.length || !place) return;
    const box = node.getBoundingClientRect();
    const far = (s) => Math.hypot(place.x(s.x) - (e.clientX - box.x), plane ? place.y(s.y, s.axis) - (e.clientY - box.y) : 0);
    let best = 0;
    for (let i = 0; i < stops.length; ++i) if (far(stops[i]) < far(stops[best])) best = i;
    point(best, e.clientX, e.clientY);
  });
  node.addEventListener("pointerleave", leave);
  node.addEventListener("blur", leave);
  node.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[e.key];
    if (!step) return;
    e.preventDefault();
    point((at < 0 ? stops.length - 1 : at) + step);
  });

  return {
    node,
    draw(d) {
      ({ stops, plane = false } = d);
      const width = node.clientWidth, { height = 190 } = d;
      if (!stops.length || !width) return node.replaceChildren();
      const left = d.axes[0].title ? 64 : 48, right = d.axes[1] ? 64 : 10, floor = height - (d.x.title ? 42 : 24);
      const inner = width - left - right;
      place = {
        x: (v) => left + ((v - d.x.low) / (d.x.high - d.x.low)) * inner,
        y: (v, axis = 0) => top + ((d.axes[axis].high - v) / (d.axes[axis].high - d.axes[axis].low)) * (floor - top),
      };
      const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": true });
      const middle = (top + floor) / 2;
      d.axes.forEach((a, i) => {
        for (const v of a.ticks ?? ticks(a.low, a.high, 4)) {
          const y = place.y(v, i).toFixed(1);
          if (i === 0) picture.append(svg("path", { d: `M${left} ${y}H${width - right}`, class: "grid" }));
          picture.append(svg("text", { x: i ? width - right + 6 : left - 6, y: Number(y) + 4,
            class: `${i ? "begin" : "end"} ${a.class ?? ""}` }, short(v)));
        }
        if (a.title) picture.append(svg("text", { class: `middle ${a.class ?? ""}`,
          transform: `translate(${i ? width - 8 : 14} ${middle}) rotate(${i ? 90 : -90})` }, a.title));
      });
      for (const v of ticks(d.x.low, d.x.high, Math.max(3, Math.floor(inner / 90)), d.x.steps))
        if (!d.x.whole || Number.isInteger(v))
          picture.append(svg("path", { d: d.x.title ? `M${place.x(v).toFixed(1)} ${top}V${floor}` : "", class: "grid" }),
            svg("text", { x: place.x(v), y: floor + 18, class: place.x(v) > width - 20 ? "end" : "middle" }, short(v)));
      if (d.x.title) picture.append(svg("text", { x: left + inner / 2, y: height - 4, class: "middle" }, d.x.title));
      for (const { points, axis, class: kind = "", area, width: stroke } of d.lines) {
        const line = points.map(([x, y], i) => `${i ? "L" : "M"}${place.x(x).toFixed(1)} ${place.y(y, axis).toFixed(1)}`).join("");
        const ends = [points.at(-1)[0], points[0][0]].map((x) => place.x(x).toFixed(1));
        if (area) picture.append(svg("path", { d: `${line}L${ends[0]} ${floor}L${ends[1]} ${floor}Z`, class: `area ${kind}` }));
        picture.append(svg("path", { d: line, class: `line ${kind}`, style: stroke ? `stroke-width: ${stroke}` : null }));
      }
      for (const l of d.limits ?? [])
        picture.append(svg("path", { class: "limit", d: l.x === undefined ? `M${left} ${place.y(l.y)}h${inner}`
          : `M${place.x(l.x)} ${top}V${floor}` }, svg("title", {}, l.title)));
      for (const dot of d.dots ?? [])
        picture.append(svg("circle", { cx: place.x(dot.x), cy: place.y(dot.y), r: dot.r ?? 3, class: dot.class }));
      cross = svg("circle", { r: 5, class: "cross", visibility: "hidden" });
      picture.append(cross);
      node.setAttribute("aria-label", `${d.label} Arrow keys show single values.`);
      node.replaceChildren(picture);
      if (at >= 0 && document.activeElement === node) point(at);
    },
  };
}

/// The loss over a training's iterations.
export function lossChart() {
  const chart = lineChart({ "data-testid": "loss-curve" });
  return {
    node: chart.node,
    draw(iterations) {
      const points = iterations.filter((i) => i.loss !== null);
      chart.node.dataset.points = points.length;
      const losses = points.map((p) => p.loss);
      const low = Math.min(...losses), high = Math.max(...losses);
      const margin = (high - low || Math.abs(high) || 1) * 0.06;
      const first = points[0], end = points.at(-1);
      chart.draw({
        x: { low: first?.iteration, high: Math.max(end?.iteration, first?.iteration + 1), whole: true, title: "iteration" },
        axes: [{ low: low - margin, high: high + margin, title: "loss" }],
        lines: [{ points: points.map((p) => [p.iteration, p.loss]), area: true }],
        dots: [{ x: end?.iteration, y: end?.loss, class: "head" }],
        stops: points.map((p) => ({ x: p.iteration, y: p.loss, tip: [`iteration ${p.iteration}: loss ${short(p.loss)}`,
          `${duration(p.end_s - p.begin_s)}, gradient norm ${short(p.gradient_norm)}`] })),
        label: first && `Loss over iterations: ${short(first.loss)} at ${first.iteration}, ${short(end.loss)} at ${end.iteration}.`,
      });
    },
  };
}
