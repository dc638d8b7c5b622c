import { byId, cellRow, el, keyed, setText, tableBody } from "/page/dom.js";
import { duration, number } from "/page/text.js";

// Fronts: what became of their requests; decoders: their caches and sequences.

const outcomes = ["finished", "cancelled", "declined", "failed"];

function prefills({ bubbles, decoders, yields }) {
  if (bubbles + decoders === 0) return "-";
  return `${number(bubbles)} of ${number(bubbles + decoders)} in bubbles` + (yields ? `, ${number(yields)} yields` : "");
}

function frontRow() {
  return cellRow("front", 5, (f, cells, node) => {
    node.dataset.front = f.name;
    node.dataset.present = f.present;
    setText(cells[0], f.name + (f.present ? "" : " (absent)"));
    const ended = outcomes.filter((o) => f[o] > 0).map((o) => `${number(f[o])} ${o}`);
    setText(cells[1], [`${number(f.requests)} under way`, ...ended].join(", ") + (f.retries ? `; ${number(f.retries)} retries` : ""));
    setText(cells[2], f.ttft_p50_s === null ? "-" : `${duration(f.ttft_p50_s)}, 99 %: ${duration(f.ttft_p99_s)}`);
    setText(cells[3], number(f.tokens));
    setText(cells[4], prefills(f.prefills));
  });
}

function pagesBar() {
  const meter = el("meter", { min: 0 }), text = el("span");
  return { node: el("span", {}, meter, text), refresh(d) {
    meter.max = Math.max(1, d.pages);
    meter.value = d.pages - d.free_pages;
    setText(text, ` ${number(d.pages - d.free_pages)} of ${number(d.pages)}`);
  } };
}

function decoderRow() {
  const pages = pagesBar();
  return cellRow("decoder", 5, (d, cells, node) => {
    node.dataset.node = d.node;
    setText(cells[0], d.model);
    setText(cells[1], `${d.node} in ${d.datacenter}` + (d.ending ? " (ends)" : ""));
    if (!cells[2].firstChild) cells[2].append(pages.node);
    pages.refresh(d);
    setText(cells[3], `${number(d.running)} running, ${number(d.waiting)} waiting`);
    setText(cells[4], number(d.context));
  });
}

export function showServing({ fronts, decoders }) {
  byId("serving-section").hidden = fronts.length === 0;
  byId("no-decoders").hidden = decoders.length > 0;
  byId("decoders").hidden = decoders.length === 0;
  keyed(tableBody(byId("fronts"), ["front", "completions", "time to first token", "tokens", "prompts"]), fronts, (f) => f.name, frontRow);
  keyed(tableBody(byId("decoders"), ["model", "decoder", "cache pages", "sequences", "context"]), decoders,
    (d) => `${d.node}/${d.lease}`, decoderRow);
}
