// Elements and numbers. Text from the cluster becomes text nodes alone, never markup.

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((c) => c !== null && c !== undefined));
  return node;
}

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

export const byId = (id) => document.getElementById(id);

/// Sets the text only if it differs, so that selections and screen readers are left alone.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/// One child of `list` for each item, in order; children keep their identity, and so the focus.
/// make(item): {node, refresh(item)}.
export function keyed(list, items, key, make) {
  const known = list.known ?? (list.known = new Map());
  const wanted = new Set(items.map(key));
  for (const [k, part] of known)
    if (!wanted.has(k)) {
      part.node.remove();
      known.delete(k);
    }
  items.forEach((item, i) => {
    const k = key(item);
    if (!known.has(k)) known.set(k, make(item));
    const { node, refresh } = known.get(k);
    if (list.children[i] !== node) list.insertBefore(node, list.children[i] ?? null);
    refresh(item);
  });
}

/// A table's row of so many cells; fill(item, cells, node) sets their texts.
export function cellRow(testid, count, fill) {
  const cells = Array.from({ length: count }, () => el("td"));
  const node = el("tr", { "data-testid": testid }, ...cells);
  return { node, refresh: (item) => fill(item, cells, node) };
}

/// The body of the table in a box, which is made at the first call.
export function tableBody(box, head) {
  if (!box.firstChild) {
    const titles = head.map((t) => el("th", { scope: "col" }, t));
    box.append(el("table", {}, el("thead", {}, el("tr", {}, ...titles)), el("tbody")));
  }
  return box.querySelector("tbody");
}

// The tip of what is under the pointer or has the focus. Lines of text.
const tip = byId("tip");
export function showTip(lines, x, y) {
  tip.replaceChildren(...lines.map((line) => el("div", {}, line)));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - width - 4))}px`;
  tip.style.top = `${y + 16 + height > innerHeight ? Math.max(4, y - height - 8) : y + 16}px`;
}
export function hideTip() {
  tip.hidden = true;
}
addEventListener("keydown", (e) => e.key === "Escape" && hideTip());
addEventListener("scroll", hideTip, { passive: true });
