import { duration, el, hideTip, short, showTip, svg } from "/page/dom.js";

// A line over iterations, with the value under the pointer, or under the arrow keys.

const height = 190, left = 48, right = 10, top = 10, bottom = 24;

/// A round distance between ticks, for about n of them.
function tick(range, n) {
  const rough = range / n, power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((m) => m * power).find((step) => step >= rough * 0.999);
}

function ticks(from, to, n) {
  if (!(to > from)) return [from];
  const step = tick(to - from, n), all = [];
  for (let i = Math.ceil(from / step); i * step <= to * (1 + 1e-9) + 1e-12; ++i) all.push(i * step);
  return all;
}

export function lossChart() {
  const node = el("div", { class: "chart", tabindex: 0, role: "img", "data-testid": "loss-curve" });
  let points = [], place = null, at = -1, cross = null;

  function point(i, clientX, clientY) {
    at = Math.max(0, Math.min(points.length - 1, i));
    const p = points[at];
    if (!p || !place) return;
    cross.setAttribute("transform", `translate(${place.x(p.iteration)} ${place.y(p.loss)})`);
    cross.setAttribute("visibility", "visible");
    const box = node.getBoundingClientRect();
    showTip([`iteration ${p.iteration}: loss ${short(p.loss)}`,
      `${duration(p.end_s - p.begin_s)}, gradient norm ${short(p.gradient_norm)}`],
    clientX ?? box.x + place.x(p.iteration), clientY ?? box.y + place.y(p.loss));
  }
  function leave() {
    at = -1;
    cross?.setAttribute("visibility", "hidden");
    hideTip();
  }
  node.addEventListener("pointermove", (e) => {
    if (!points.length || !place) return;
    const wanted = place.iteration(e.clientX - node.getBoundingClientRect().x);
    let best = 0;
    for (let i = 0; i < points.length; ++i)
      if (Math.abs(points[i].iteration - wanted) < Math.abs(points[best].iteration - wanted)) best = i;
    point(best, e.clientX, e.clientY);
  });
  node.addEventListener("pointerleave", leave);
  node.addEventListener("blur", leave);
  node.addEventListener("keydown", (e) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[e.key];
    if (!step) return;
    e.preventDefault();
    point((at < 0 ? points.length - 1 : at) + step);
  });

  return {
    node,
    draw(iterations) {
      points = iterations.filter((i) => i.loss !== null);
      const width = node.clientWidth;
      node.dataset.points = points.length;
      if (!points.length || !width) return node.replaceChildren();
      const losses = points.map((p) => p.loss);
      let low = Math.min(...losses), high = Math.max(...losses);
      const margin = (high - low || Math.abs(high) || 1) * 0.06;
      low -= margin;
      high += margin;
      const first = points[0].iteration, last = Math.max(points.at(-1).iteration, first + 1);
      const inner = width - left - right;
      place = {
        x: (i) => left + ((i - first) / (last - first)) * inner,
        y: (v) => top + ((high - v) / (high - low)) * (height - top - bottom),
        iteration: (x) => first + ((x - left) / inner) * (last - first),
      };
      const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": true });
      for (const v of ticks(low, high, 4)) {
        const y = place.y(v).toFixed(1);
        picture.append(svg("path", { d: `M${left} ${y}H${width - right}`, class: "grid" }),
          svg("text", { x: left - 6, y: Number(y) + 4, class: "end" }, short(v)));
      }
      for (const v of ticks(first, last, Math.max(3, Math.floor(inner / 90))).filter(Number.isInteger))
        picture.append(svg("text", { x: place.x(v), y: height - 6, class: "middle" }, String(v)));
      const line = points.map((p, i) => `${i ? "L" : "M"}${place.x(p.iteration).toFixed(1)} ${place.y(p.loss).toFixed(1)}`).join("");
      const floor = height - bottom;
      picture.append(
        svg("path", { d: `${line}L${place.x(points.at(-1).iteration).toFixed(1)} ${floor}L${place.x(first)} ${floor}Z`, class: "area" }),
        svg("path", { d: line, class: "line" }));
      const end = points.at(-1);
      picture.append(svg("circle", { cx: place.x(end.iteration), cy: place.y(end.loss), r: 3, class: "head" }));
      cross = svg("circle", { r: 5, class: "cross", visibility: "hidden" });
      picture.append(cross);
      node.setAttribute("aria-label", `Loss over iterations: ${short(points[0].loss)} at ${first}, ` +
        `${short(end.loss)} at ${end.iteration}. Arrow keys show single iterations.`);
      node.replaceChildren(picture);
      if (at >= 0 && document.activeElement === node) point(at);
    },
  };
}
