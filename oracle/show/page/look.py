"""How a report looks and what its tables can do; both stand inside the file."""

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1b; --faint: #5b5b5e; --rule: #d9d9da;
  --paper: #ffffff; --wait: #ececee; --best: #eef5fa; --link: #0072b2; --warn: #a94400; }
@media (prefers-color-scheme: dark) { :root { --ink: #ececee; --faint: #a9a9ad; --rule: #3d3d42;
  --paper: #18181b; --wait: #2b2b30; --best: #1d2a33; --link: #6dbdf0; --warn: #ff9d5c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 2.2rem 1.4rem 4rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.75rem; line-height: 1.25; margin: 0 0 .4rem; text-wrap: balance; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .9rem;
  border-top: 1px solid var(--rule); }
p { margin: .4rem 0; max-width: 46rem; } .faint { color: var(--faint); }
code, pre { font: .88em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.plan { display: block; margin: 1rem 0 1.2rem; padding: .8rem 1rem; background: var(--best);
  border-left: 4px solid var(--link); font-size: 1.02rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(12.5rem, 1fr)); gap: 1rem;
  margin: 1rem 0; }
.tile b { display: block; font-size: 1.55rem; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.tile span { display: block; color: var(--faint); font-size: .9rem; }
.warn { color: var(--warn); }
figure { margin: 1.2rem 0; overflow-x: auto; break-inside: avoid; }
figure svg { display: block; width: 100%; min-width: 40rem; height: auto; color: var(--ink); }
figure svg * { stroke-linejoin: round; stroke-linecap: butt; }
figcaption { color: var(--faint); font-size: .9rem; }
.table { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem;
  font-variant-numeric: tabular-nums; }
.small table { width: auto; min-width: 26rem; }
th, td { text-align: left; padding: .38rem .7rem .38rem 0; border-bottom: 1px solid var(--rule);
  vertical-align: top; }
th { color: var(--faint); font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
td code { overflow-wrap: anywhere; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--link); }
th[aria-sort] button::after { content: " ↑"; }
th[aria-sort=descending] button::after { content: " ↓"; }
button.copy { font: inherit; font-size: .85rem; color: var(--link); background: none;
  border: 1px solid var(--rule); border-radius: .3rem; cursor: pointer; padding: .1rem .5rem;
  margin: .2rem .4rem .2rem 0; }
details { margin: .5rem 0; } summary { cursor: pointer; }
pre { background: var(--wait); padding: .8rem 1rem; overflow: auto; max-height: 32rem; }
@media print { :root { --ink: #000; --faint: #444; --rule: #bbb; --paper: #fff; --wait: #f1f1f1;
  --best: #f3f3f3; } body { max-width: none; padding: 0; font-size: 10.5pt; }
  button.copy { display: none; } h2 { break-after: avoid; } tr { break-inside: avoid; }
  pre { max-height: none; white-space: pre-wrap; } details:not([open])::details-content {
  content-visibility: visible; block-size: auto; } figure svg { min-width: 0; } }
""".strip()

SCRIPT = """
"use strict";
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => row.cells[at].dataset.v ?? row.cells[at].textContent;
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.title = "sort";
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(other => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a, at), y = value(b, at), d = Number(x) - Number(y);
        return Number.isNaN(d) || x === "" || y === "" ? x.localeCompare(y) : d;
      });
      body.append(...(down ? rows.reverse() : rows));
    });
  });
  const text = () => [...table.rows].map(row => [...row.cells].map(
    cell => cell.textContent.replace(/\\s+/g, " ").trim()).join("\\t")).join("\\n");
  addCopy(table.parentElement, "copy table", text);
}
for (const pre of document.querySelectorAll("pre")) addCopy(pre, "copy", () => pre.textContent);
const data = document.getElementById("data");
if (data) addCopy(document.getElementById("as-json"), "copy the ranking as JSON",
  () => JSON.stringify(JSON.parse(data.textContent), null, 1));
function addCopy(place, words, text) {
  const button = document.createElement("button");
  button.type = "button"; button.className = "copy"; button.textContent = words;
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(text()); button.textContent = "copied"; }
    catch {
      const area = document.createElement("textarea");
      area.value = text(); document.body.append(area); area.select();
      button.textContent = document.execCommand("copy") ? "copied" : "cannot copy here";
      area.remove();
    }
    setTimeout(() => { button.textContent = words; }, 1500);
  });
  place.before(button);
}
""".strip()
