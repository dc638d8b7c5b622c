import { byId, cellRow, el, hideTip, keyed, setText, showTip, svg, tableBody } from "/page/dom.js";
import { bytes, duration, number, short } from "/page/text.js";

const max_squares = 16, max_nodes = 200, max_labelled = 6;

export const colour = (job) => `job${job % 8}`;

const rate = (gbps) => (gbps >= 1 ? `${short(gbps)} Gbit/s` : `${short(gbps * 1000)} Mbit/s`);
const traffic = (b) => (b === null ? "-" : b < 1 ? "0 B/s" : `${bytes(b)}/s`);

function totals(nodes) {
  const present = nodes.filter((n) => n.present);
  const sum = (list, of) => list.reduce((total, n) => total + of(n), 0);
  return {
    all: sum(nodes, (n) => n.gpus),
    lost: sum(nodes.filter((n) => !n.present), (n) => n.gpus),
    held: sum(present, (n) => n.gpus - n.idle),
  };
}

/// A square for each GPU, or a bar: its holder's colour.
function gpus(n) {
  const held = n.holders.flatMap((h) => Array(h.gpus).fill(h));
  const label = n.present ? `${n.gpus - n.idle} of ${n.gpus} GPUs held` : "lost";
  const box = el("span", { class: "gpus", role: "img", "aria-label": label });
  if (n.gpus > max_squares) {
    box.append(el("meter", { min: 0, max: n.gpus, value: n.gpus - n.idle }), ` ${n.gpus - n.idle}/${n.gpus}`);
    return box;
  }
  for (let i = 0; i < n.gpus; ++i) {
    const h = held[i];
    const square = el("span", {
      class: `gpu ${!n.present ? "lost" : h ? colour(h.job) : "idle"}`,
      title: !n.present ? "lost" : h ? `job ${h.job}: ${h.name}` : "idle",
    });
    box.append(square);
  }
  return box;
}

function nodeRow() {
  const name = el("span", { class: "node-name" }), type = el("span", { class: "soft" });
  const state = el("span", { class: "mark", hidden: true }, "lost");
  const cell = el("span", { class: "cell" });
  const node = el("li", { "data-testid": "node" }, name, type, cell, state);
  let last = "";
  return {
    node,
    refresh(n) {
      const now = JSON.stringify(n);
      if (now === last) return;
      last = now;
      setText(name, n.name);
      setText(type, n.gpu);
      node.dataset.node = n.name;
      node.dataset.present = n.present;
      node.classList.toggle("absent", !n.present);
      const drains = n.state === "draining" || n.state === "drained";
      setText(state, n.present && drains ? n.state : "lost");
      state.hidden = n.present && !drains;
      cell.replaceChildren(gpus(n));
    },
  };
}

function datacenterCard() {
  const name = el("h3"), facts = el("p", { class: "soft" });
  const list = el("ul", { class: "nodes" });
  const more = el("p", { class: "soft", hidden: true });
  const node = el("article", { class: "card", "data-testid": "datacenter" }, name, facts, list, more);
  return {
    node,
    refresh(d) {
      const t = totals(d.nodes);
      setText(name, d.name);
      setText(facts, `${number(d.nodes.length)} node${d.nodes.length === 1 ? "" : "s"}, ${t.held} of ${t.all} GPUs held` +
        (t.lost ? `, ${t.lost} lost` : "") + (d.gateway_present ? "" : " - its gateway is absent"));
      keyed(list, d.nodes.slice(0, max_nodes), (n) => n.name, nodeRow);
      more.hidden = d.nodes.length <= max_nodes;
      setText(more, `and ${d.nodes.length - max_nodes} more`);
    },
  };
}

/// Both directions of each link as one edge.
function edges(links) {
  const all = new Map();
  for (const l of links) {
    const key = [l.from, l.to].sort().join("\n");
    const e = all.get(key) ?? { a: l.from, b: l.to, rtt_ms: l.rtt_ms, gbps: l.gbps, emulated: l.emulated, directions: [] };
    e.directions.push(l);
    all.set(key, e);
  }
  return [...all.values()];
}

/// Whether tensors take what the cluster file says of a link, or what the network takes.
function emulation(link) {
  return link.emulated ? ", emulated" : ", not emulated";
}

function arc(x, y, r, from, to) {
  if (to - from >= 1) to = from + 0.999;  // an arc that ends where it begins is not drawn
  const at = (share) => {
    const angle = 2 * Math.PI * (share - 0.25);
    return `${(x + r * Math.cos(angle)).toFixed(2)} ${(y + r * Math.sin(angle)).toFixed(2)}`;
  };
  return `M${at(from)}A${r} ${r} 0 ${to - from > 0.5 ? 1 : 0} 1 ${at(to)}`;
}

function disc(d, x, y, r) {
  const t = totals(d.nodes);
  const share = (n) => (t.all ? n / t.all : 0);
  const g = svg("g", { class: d.gateway_present ? "site" : "site absent" });
  g.append(svg("circle", { cx: x, cy: y, r, class: "ring" }));
  if (t.held) g.append(svg("path", { d: arc(x, y, r, 0, share(t.held)), class: "held" }));
  if (t.lost) g.append(svg("path", { d: arc(x, y, r, 1 - share(t.lost), 1), class: "gone" }));
  g.append(svg("text", { x, y: y + 1, class: "big" }, `${t.held}/${t.all}`));
  g.append(svg("text", { x, y: y + 14, class: "small" }, "GPUs"));
  g.append(svg("text", { x, y: y + r + 17, class: "site-name" }, d.name));
  return g;
}

function edge(e, from, to, labelled) {
  const busiest = Math.max(...e.directions.map((d) => d.bytes_s ?? 0));
  const share = e.gbps ? Math.min(1, (busiest * 8e-9) / e.gbps) : 0;
  const g = svg("g", { class: "edge", tabindex: 0, "data-testid": "edge" });
  const facts = e.rtt_ms === null ? "not in the cluster file" : `${short(e.rtt_ms)} ms, ${rate(e.gbps)}${emulation(e)}`;
  const lines = [`${e.a} - ${e.b}: ${facts}`,
    ...e.directions.map((d) => `${d.from} to ${d.to}: ${traffic(d.bytes_s)}, ${bytes(d.bytes ?? 0)} in all`)];
  g.setAttribute("aria-label", lines.join("; "));
  g.append(svg("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y, class: "hit" }));
  g.append(svg("line", { x1: from.x, y1: from.y, x2: to.x, y2: to.y,
    class: busiest > 1 ? "wire busy" : "wire", "stroke-width": 1.5 + 5 * share }));
  if (labelled) {
    const x = (from.x + to.x) / 2, y = (from.y + to.y) / 2;
    g.append(svg("text", { x, y: y - 4, class: "label" }, facts));
    g.append(svg("text", { x, y: y + 11, class: "label traffic" }, traffic(busiest)));
  }
  g.addEventListener("pointermove", (ev) => showTip(lines, ev.clientX, ev.clientY));
  g.addEventListener("pointerleave", hideTip);
  g.addEventListener("focus", () => {
    const box = g.getBoundingClientRect();
    showTip(lines, box.x + box.width / 2, box.y + box.height / 2);
  });
  g.addEventListener("blur", hideTip);
  return g;
}

let drawn = "";
function drawMap(c, links) {
  const map = byId("map");
  const sites = c.datacenters, width = map.clientWidth;
  map.hidden = sites.length < 2;
  // Not while somebody points at it: the element under the pointer would go.
  const now = JSON.stringify([sites.map((d) => [d.name, d.gateway_present, totals(d.nodes)]), links, width]);
  if (map.hidden || now === drawn || map.matches(":hover, :focus-within")) return;
  drawn = now;
  const labelled = sites.length <= max_labelled && (width > 480 || sites.length === 2);
  const r = 30, height = sites.length === 2 ? 130 : Math.min(300, 150 + 25 * sites.length);
  const cx = width / 2, cy = height / 2 - 8;
  const rx = Math.min(width / 2 - r - 24, 330), ry = sites.length === 2 ? 0 : height / 2 - r - 22;
  // A triangle's middle is not that of its height.
  const up = sites.length === 3 ? -ry / 4 : 0;
  const places = new Map(sites.map((d, i) => {
    const angle = 2 * Math.PI * (i / sites.length) - (sites.length === 2 ? Math.PI : Math.PI / 2);
    return [d.name, { x: cx + rx * Math.cos(angle), y: cy - up + ry * Math.sin(angle) }];
  }));
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": "Datacenters and the links between them" });
  for (const e of edges(links))
    if (places.has(e.a) && places.has(e.b))
      picture.append(edge(e, places.get(e.a), places.get(e.b), labelled));
  for (const d of sites) {
    const { x, y } = places.get(d.name);
    picture.append(disc(d, x, y, r));
  }
  map.replaceChildren(picture);
}

export function showCluster(c, links) {
  const nodes = c.datacenters.flatMap((d) => d.nodes);
  const t = totals(nodes), s = c.scheduling;
  setText(byId("facts"), `policy ${c.policy} - ${t.held} of ${t.all} GPUs held - ` +
    `${number(s.started + s.moved + s.stopped)} decisions` +
    (s.rounds ? `, ${duration(s.rounds_s / s.rounds)} each round` : ""));
  drawMap(c, links);
  keyed(byId("datacenters"), c.datacenters, (d) => d.name, datacenterCard);
}

function linkRow() {
  return cellRow("link", 5, (l, cells) => {
    const used = l.gbps && l.bytes_s !== null ? (l.bytes_s * 8e-9) / l.gbps : null;
    setText(cells[0], `${l.from} \u2192 ${l.to}`);
    setText(cells[1], l.rtt_ms === null ? "-" : `${short(l.rtt_ms)} ms`);
    setText(cells[2], l.gbps === null ? "-" : rate(l.gbps) + emulation(l));
    setText(cells[3], traffic(l.bytes_s) + (used >= 0.001 ? ` (${(100 * used).toFixed(1)} %)` : ""));
    setText(cells[4], l.bytes === null ? "gateway absent" : bytes(l.bytes));
  });
}

export function showLinks(links) {
  byId("no-links").hidden = links.length > 0;
  byId("links").hidden = links.length === 0;
  keyed(tableBody(byId("links"), ["link", "round trip", "rate", "now", "in all"]), links, (l) => `${l.from}\n${l.to}`, linkRow);
}
