"""How a report looks and what its tables can do; both stand inside the file."""

from oracle.show.plot.palette import variables

THEME = f"""
:root {{ color-scheme: light dark; {variables(dark=False)} --best: #eef5fa; --link: #00578f;
  --warn: #a94400; }}
@media (prefers-color-scheme: dark) {{ :root {{ {variables(dark=True)} --best: #1d2a33;
  --link: #6dbdf0; --warn: #ff9d5c; }} }}
""".strip()

STYLE = """
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.2rem 1rem 3rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .6rem; text-wrap: balance; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; padding-top: .8rem;
  border-top: 1px solid var(--rule); }
p { margin: .4rem 0; max-width: 46rem; } .faint { color: var(--faint); }
code, pre { font: .88em/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.plan { display: block; margin: 1rem 0 1.2rem; padding: .8rem 1rem; background: var(--best);
  border-left: 4px solid var(--link); font-size: .82rem; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1rem;
  margin: 1rem 0; }
.tile b { display: block; font-size: 1.4rem; line-height: 1.2;
  font-variant-numeric: tabular-nums; }
.tile span { display: block; color: var(--faint); font-size: .9rem; }
.warn { color: var(--warn); }
figure { margin: .8rem 0; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; color: var(--ink); }
.wide { display: none; } .narrow { max-width: 30rem; }
.key { display: grid; gap: .15rem .9rem; margin: .6rem 0; font-size: .85rem; }
.key dt { font-weight: 600; } .key dd { margin: 0 0 .3rem; }
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
pre { background: var(--wait); padding: .8rem 1rem; overflow: auto; max-height: 32rem;
  white-space: pre-wrap; overflow-wrap: break-word; }
.flag { white-space: nowrap; }
@media (min-width: 44rem) { body { padding: 2.2rem 1.6rem 4rem; } h1 { font-size: 1.9rem; }
  .plan { font-size: 1.02rem; }
  h2 { font-size: 1.25rem; } .wide { display: block; } .narrow { display: none; }
  .key { grid-template-columns: max-content 1fr; } .key dd { margin: 0; } }
@media (max-width: 43.99rem) { .cards thead { position: absolute; left: -999rem; }
  .cards, .cards tbody { display: block; }
  .cards tr { display: flex; flex-wrap: wrap; gap: .1rem .9rem; padding: .5rem 0;
    border-bottom: 1px solid var(--rule); }
  .cards td, .cards td.n { padding: 0; border: 0; text-align: left; white-space: normal; }
  .cards td[data-head=plan], .cards td[data-head=exchange] { flex: 1 0 80%; font-weight: 600; }
  .cards td::before { content: attr(data-head) " "; color: var(--faint); font-size: .85em; }
  .cards td[data-head="#"]::before, .cards td[data-head=plan]::before,
  .cards td[data-head=exchange]::before { content: ""; }
  .cards td:empty { display: none; } .small table { min-width: 0; width: 100%; } }
@media print { .wide { display: block; } .narrow { display: none; }
  :root { --ink: #000; --faint: #444; --rule: #bbb; --paper: #fff; --wait: #f1f1f1;
  --best: #f3f3f3; } body { max-width: none; padding: 0; font-size: 10.5pt; }
  button.copy { display: none; } h2 { break-after: avoid; } tr { break-inside: avoid; }
  pre { max-height: none; white-space: pre-wrap; } details:not([open])::details-content {
  content-visibility: visible; block-size: auto; } }
""".strip()
STYLE = f"{THEME}\n{STYLE}"

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
