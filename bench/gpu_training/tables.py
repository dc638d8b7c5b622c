#!/usr/bin/env python3
"""Writes the tables of docs/results/gpu-2026-11.md from the records of gpu-day.

usage: tables.py [--check] [--records FOLDER] [--page FILE] [--allow-emulated]

Everything between the page's two markers is replaced. --check: writes nothing; status 1 if the page differs from
what the records give. A record of an emulated GPU or of small models measures nothing: it is an error, except with
--allow-emulated.
"""
import argparse
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
BEGIN, END = "<!-- Made by bench/gpu_training/tables.py from records; do not edit. -->", "<!-- End of tables.py's part. -->"
NO_RECORD = "No record yet: nothing on this page was measured on a GPU.\n"


def text(value, form, factor=1):
    """A number; nothing where there is none."""
    return format(value * factor, form) if isinstance(value, (int, float)) else ""


def share(value):
    return text(value, ".1f", 100) + " %" if isinstance(value, (int, float)) else "?"


def table(columns, rows):
    """Columns with a leading '>' are numbers."""
    lines = ["| " + " | ".join(c.lstrip(">") for c in columns) + " |"]
    lines.append("|" + "|".join("---:" if c.startswith(">") else "---" for c in columns) + "|")
    lines += ["| " + " | ".join(str(v).replace("|", "\\|") for v in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def steps_table(record):
    rows = [(s["part"], s["step"], s["state"], s["seconds"], s["sentence"]) for s in record["steps"]]
    return table(["part", "step", "result", ">s", "last line"], rows)


def speed_table(found):
    rows = []
    for row in found["rows"]:
        for key, who in (("troupe", "Troupe"), ("troupe_without_graphs", "Troupe without graphs"),
                         ("pytorch_flash", "PyTorch, FlashAttention 2"), ("pytorch_cudnn", "PyTorch, cuDNN attention"),
                         ("pytorch_any", "PyTorch")):
            r = row.get(key)
            if r is None:
                continue
            ratio = row.get("ratios", {}).get(key.removeprefix("pytorch_"), {})
            if "step_s" not in r:
                rows.append((row["model"], row["rows"], who, r.get("why", ""), "", "", "", "", "", ""))
                continue
            rows.append((row["model"], row["rows"], who, text(r["tokens_per_s"], ",.0f"),
                         text(r["median_tokens_per_s"], ",.0f"), text(r["step_s"], ".2f", 1e3), share(r.get("mfu")),
                         share(r.get("of_product")), text(r.get("driver_used_bytes"), ".2f", 1e-9),
                         text(ratio.get("best"), ".2f")))
    peak = found.get("peak_tflops")
    source = f"{peak:g} TFLOP/s ({found['catalogue']})" if peak else "unknown"
    return (f"16-bit peak by the catalogue: {source}; a product of 8192 x 8192 x 8192 reaches "
            f"{text(found.get('reached_tflops'), '.0f') or '?'}. The last column is Troupe's speed over PyTorch's, best "
            "round by best round.\n\n" +
            table(["model", ">rows", "who", ">tokens/s", ">median", ">ms a step", ">MFU", ">of the product",
                   ">driver GB", ">ratio"], rows))


def losses_table(found):
    shown = [i for i in (1, 2, 25, 50, 100, 150, 200) if i <= found.get("steps", 0)]
    rows = []
    for name, t in found.get("trainings", {}).items():
        if "losses" not in t:
            rows.append((name, *("" for _ in shown), "", "", t.get("why", "")))
            continue
        far, most = t["farthest"], t["allowed"]
        limit = "any" if most["later"] is None else text(most["later"], ".4f", 100) + " %"
        rows.append((name, *(f"{t['losses'][i - 1]:.5f}" for i in shown),
                     f"{text(far['early'], '.4f', 100)} % of {text(most['early'], 'g', 100)} %",
                     f"{text(far['later'], '.4f', 100)} % of {limit}", "yes" if t["within"] else "**no**"))
    return table(["training", *(f">{i}" for i in shown), ">to step 50", ">later", "within"], rows)


def memory_table(found):
    def gb(row, who, what):
        return text(row.get(who, {}).get(what), ".2f", 1e-9)

    def against_driver(row):
        asked, added = (row.get("engine", {}).get(k) for k in ("asked_bytes", "driver_added_bytes"))
        return f"{100 * (asked / added - 1):+.1f} %" if asked and added else ""

    rows = [(r["model"], r["rows"], text(r["marp_bytes"], ".2f", 1e-9), gb(r, "engine", "asked_bytes"),
             gb(r, "engine", "driver_added_bytes"), against_driver(r), gb(r, "engine", "driver_used_bytes"),
             gb(r, "pytorch_plain", "peak_allocated_bytes"), gb(r, "pytorch_fused", "peak_allocated_bytes"))
            for r in found["rows"]]
    return table(["model", ">rows", ">MARP GB", ">engine asks GB", ">driver's growth GB", ">engine's count off by",
                  ">driver in all GB", ">PyTorch, plain attention GB", ">PyTorch, fused GB"], rows)


def kernels_table(found):
    rows = []
    for m in found["models"]:
        timed = [k for k in m["kernels"] if "seconds" in k]
        for k in sorted(timed, key=lambda k: -k["seconds"])[:13]:
            rows.append((m["model"], k["kernel"], k["shape"], text(k["times"], "g"), text(k["seconds"], ".3f", 1e3),
                         share(k.get("of_bandwidth")), share(k.get("of_arithmetic"))))
    if not rows:
        return ""
    return table(["model", "kernel", "shape", ">times", ">ms", ">of the copies' rate", ">of the product's"], rows)


TABLES = (("speed", "speed.json", "Speed", speed_table), ("speed", "speed350.json", "Speed of 350M", speed_table),
          ("losses", "losses.json", "Losses", losses_table), ("memory", "memory.json", "Memory", memory_table),
          ("kernels", "kernels.json", "Kernels of a step", kernels_table))


def read(file):
    return json.loads(file.read_text(encoding="utf-8", errors="replace"))


def section(folder, allow_emulated):
    record = read(folder / "record.json")
    if (record["device"] != "cuda" or record["quick"]) and not allow_emulated:
        sys.exit(f"{folder}: this record is of {record['device']} with {'small' if record['quick'] else 'all'} models: "
                 "it measures nothing")
    out = [f"### {record['card'] or 'unknown card'}, {record['date'][:10]}\n\nDriver {record['driver'] or 'unknown'}, "
           f"commit {record['commit'][:12] or 'unknown'}; `records/{folder.name}`.\n\n" + steps_table(record)]
    for key, name, title, make in TABLES:
        file = folder / name
        if not file.is_file():
            continue
        found = read(file).get(key, {})
        made = make(found) if found.get("rows") or found.get("models") or found.get("trainings") else ""
        if made:
            cut = "" if found.get("complete") else " (ended before it was complete)"
            out.append(f"**{title}{cut}.** {made}" if made[0] != "|" else f"**{title}{cut}.**\n\n{made}")
    return "\n".join(out)


def tables(records, allow_emulated=False):
    folders = sorted((f.parent for f in records.glob("*/record.json")), reverse=True)
    if not folders:
        return NO_RECORD
    return "\n".join(section(f, allow_emulated) for f in folders)


def main():
    p = argparse.ArgumentParser(usage=__doc__)
    p.add_argument("--check", action="store_true")
    p.add_argument("--records", type=pathlib.Path, default=HERE / "records")
    p.add_argument("--page", type=pathlib.Path, default=HERE.parent.parent / "docs" / "results" / "gpu-2026-11.md")
    p.add_argument("--allow-emulated", action="store_true")
    a = p.parse_args()
    page = a.page.read_text(encoding="utf-8")
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        sys.exit(f"{a.page}: expected '{BEGIN}' and then '{END}', once each")
    before, after = page[:page.index(BEGIN) + len(BEGIN)], page[page.index(END):]
    made = f"{before}\n\n{tables(a.records, a.allow_emulated)}\n{after}"
    if a.check and made != page:
        sys.exit(f"{a.page} is not what the records in {a.records} give: run bench/gpu_training/tables.py")
    if not a.check:
        a.page.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
