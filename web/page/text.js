// Numbers as text, as the terminal has them (cli/output/human.cpp): a page and a table beside it say the same.

/// Three significant digits: "3.21", "32.1", "321", "3".
function threeFigures(x) {
  const text = x.toFixed(x < 9.995 ? 2 : x < 99.95 ? 1 : 0);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

const twoDigits = (n) => String(n).padStart(2, "0");

// The limits are half a unit of the last shown digit below the next unit: rounding never prints "60 s".
export function duration(s) {
  if (s === null || s === undefined || !Number.isFinite(s)) return "-";
  if (s < 0) return `-${duration(-s)}`;
  if (s === 0) return "0 s";
  if (s < 0.9995e-3) return `${threeFigures(s * 1e6)} us`;
  if (s < 0.9995) return `${threeFigures(s * 1e3)} ms`;
  if (s < 59.95) return `${threeFigures(s)} s`;
  const whole = Math.round(s);
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${twoDigits(whole % 60)}s`;
  const minutes = Math.round(s / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)}h ${twoDigits(minutes % 60)}m`;
  const hours = Math.round(s / 3600);
  return `${Math.floor(hours / 24)}d ${twoDigits(hours % 24)}h`;
}

function scaled(value, units) {
  let i = 0;
  while (value >= 999.5 && i + 1 < units.length) {
    value /= 1000;
    ++i;
  }
  return `${threeFigures(value)} ${units[i]}`;
}

export const bytes = (n) => scaled(n, ["B", "KB", "MB", "GB", "TB", "PB"]);
export const number = (n) => n.toLocaleString("en");
export const short = (n) => Number(n.toPrecision(4)).toString();

/// The points of a distribution as a curve with steps: it stands still up to each value, and rises there.
export function stepsOf(values, fractions) {
  let before = 0;
  const points = [[0, 0]];
  values.forEach((x, i) => {
    points.push([x, before], [x, fractions[i]]);
    before = fractions[i];
  });
  return points;
}

/// Names whose points are those of an earlier one, which would hide it: ["fcfs and srtf"].
export function sameCurves(curves) {
  const groups = new Map();
  for (const { name, points } of curves) {
    const key = JSON.stringify(points);
    groups.set(key, [...(groups.get(key) ?? []), name]);
  }
  return [...groups.values()].filter((names) => names.length > 1).map((names) => names.join(" and "));
}
