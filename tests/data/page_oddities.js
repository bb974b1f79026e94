// What is odd for people who cannot see, or not well: names, labels, headings, ids, contrast.
const odd = [];
const every = (what) => document.querySelectorAll(what);
const text = (one) => (one.getAttribute("aria-label") ?? one.textContent).trim();
for (const one of every("input, select"))
  if (!one.labels?.length && !one.getAttribute("aria-label")) odd.push(`no label: ${one.id}`);
for (const one of every("button, a, summary"))
  if (!text(one)) odd.push(`no name: ${one.outerHTML.slice(0, 60)}`);
for (const one of every("svg, img, [role=img]"))
  if (!one.closest("[aria-hidden=true]") && !one.getAttribute("aria-label"))
    odd.push(`no words: ${one.tagName}`);
const ids = [...every("[id]")].map((one) => one.id);
for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) odd.push(`twice: ${id}`);
for (const name of ["aria-describedby", "aria-labelledby", "for"])
  for (const one of every(`[${name}]`))
    for (const id of one.getAttribute(name).split(" "))
      if (!document.getElementById(id)) odd.push(`refers to nobody: ${id}`);
let level = 0;
for (const one of every("h1, h2, h3, h4")) {
  const now = Number(one.tagName[1]);
  if (now > level + 1) odd.push(`a heading skips: ${one.textContent}`);
  level = now;
}
for (const what of ["main", "header", "form", "h1"])
  if (every(what).length !== 1) odd.push(`${every(what).length} of ${what}`);
for (const one of every("nav, form, main section"))
  if (!one.getAttribute("aria-label") && !one.getAttribute("aria-labelledby"))
    odd.push(`a landmark without a name: ${one.tagName} ${one.id}`);
for (const one of every("[role=status], [aria-live]"))
  if (one.closest("[aria-hidden=true]")) odd.push("news that nobody hears");
for (const one of every("th")) if (!one.scope) odd.push(`a head of nothing: ${one.textContent}`);
for (const one of every("a[href^='#']"))
  if (!document.getElementById(one.hash.slice(1))) odd.push(`leads nowhere: ${one.hash}`);
if (document.documentElement.lang !== "en") odd.push("no language");
for (const one of every("[tabindex]")) if (one.tabIndex > 0) odd.push("an order of tabs of its own");
const light = (colour) => colour
  .map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
const rgb = (colour) => colour.match(/[\d.]+/g).slice(0, 3).map(Number);
function behind(one) {
  for (; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (!/, 0\)$|transparent/.test(colour)) return rgb(colour);
  }
  return [255, 255, 255];
}
for (const one of every("p, td, th, label, legend, button, a, h1, h2, h3, code, span, output, li")) {
  if (!one.textContent.trim() || one.closest("svg") || !one.offsetParent) continue;
  const pair = [light(rgb(getComputedStyle(one).color)), light(behind(one))].sort((a, b) => b - a);
  if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5)
    odd.push(`faint: ${one.className} ${one.textContent.slice(0, 40)}`);
}
return [...new Set(odd)];
