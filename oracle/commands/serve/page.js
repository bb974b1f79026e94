// The page shows; what it shows is worked out by the server. No library, nothing from elsewhere.
const $ = (id) => document.getElementById(id);
const SLIDERS = { network: "Network", memory: "Memory", kernels: "Kernels", latency: "Latency" };
const PHONE = matchMedia("(max-width: 640px)");
const HALF = ["breakdown", "memory"];
const PICTURES = ["timeline", "network", "scaling", "pareto"];
const LOOKS = 5; // exchanges that have a colour of their own
const REST = 450; // ms that a slider rests before a search
let known, fields = {}, plan = "", shown = null, envelope = null;
let search = null, again = null, resting = 0, settled = 0;
const pictures = new Map(); // view -> the address it shows

// -- small words ---------------------------------------------------------------------------------
function el(name, said = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(said)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.flat().filter((one) => one !== null && one !== undefined));
  return made;
}
const three = (value) => Number(value.toPrecision(3)).toLocaleString("en");
function step(value, steps) {
  const [size, unit] = steps.findLast(([size]) => Math.abs(value) >= size) ?? steps[0];
  return `${three(value / size)} ${unit}`;
}
const seconds = (s) => step(s, [[1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "days"]]);
const bytes = (b) => step(b, [[1, "B"], [1024, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]]);
const percent = (p) => `${Math.round(100 * p)} %`;
const chance = (p) => (p > 0.995 ? "> 99 %" : p < 0.005 ? "< 1 %" : percent(p));

// -- the question and its address ----------------------------------------------------------------
function query(more = {}) {
  const found = new URLSearchParams();
  for (const [key, value] of Object.entries({ ...fields, plan, ...more })) if (value) found.set(key, value);
  return found;
}
function fromAddress() {
  const said = new URLSearchParams(location.search);
  plan = said.get("plan") ?? "";
  fields = {};
  for (const name of known.fields) if (said.get(name)) fields[name] = said.get(name);
  if (!fields.model) fields = { ...known.usual, ...fields };
  fill();
  const rare = [...$("more").querySelectorAll("[name]")].some((one) => fields[one.name]);
  if (rare || matchMedia("(min-width: 821px)").matches) $("more").open = true;
  return said.get("view");
}
function remember(replace = false, view = "") {
  const address = `?${query({ view })}`;
  if (replace) history.replaceState(null, "", address);
  else if (address !== location.search) history.pushState(null, "", address);
}
const absolute = (view) => new URL(`?${query({ view })}`, location.href).href;

// -- the form ------------------------------------------------------------------------------------
function choices(id, groups, first) {
  const select = $(id);
  select.replaceChildren(...(first === undefined ? [] : [el("option", { value: "" }, first)]),
    ...groups.flatMap(([label, names]) => {
      const options = names.map((name) => el("option", { value: name }, name));
      return label && names.length ? [el("optgroup", { label }, options)] : options;
    }));
}
function fill() {
  const own = (kind) => known.dropped.filter((one) => one.kind === kind).map((one) => one.name);
  const named = (kind) => [["Your own", own(kind)], [own(kind).length ? "Shipped" : "", known.names[kind]]];
  choices("model", named("models"));
  choices("system", named("systems"));
  choices("software", named("software"), "as is usual");
  choices("dataset", named("datasets"), "the model's");
  for (const name of ["precision", "optimizer"]) choices(name, [["", known.choices[name]]], "as is usual");
  choices("objective", [["", known.choices.objective]]);
  for (const input of $("form").elements) {
    if (!input.name || input.type === "file") continue;
    if (input.type === "range") { input.value = turned(input.name); told(input); }
    else {
      const value = fields[input.name] ?? (input.name === "objective" ? "time" : "");
      if (input.tagName === "SELECT" && value && ![...input.options].some((one) => one.value === value))
        input.append(el("option", { value }, value));
      input.value = value;
    }
  }
}
const turned = (name) => (name === "price" ? Number(fields.price ?? 0) : Math.log2(Number(fields[name] ?? 1)));
function factor(input) {
  if (input.name === "price") return Number(input.value) ? String(Number(input.value)) : "";
  const value = Number((2 ** Number(input.value)).toPrecision(3));
  return value === 1 ? "" : String(value);
}
function told(input) {
  const value = factor(input), output = input.parentElement.querySelector("output");
  const words = input.name === "price" ? (value ? `${value} USD/h` : "as told") : `× ${value || 1}`;
  output.textContent = words;
  output.classList.toggle("set", value !== "");
  input.setAttribute("aria-valuetext", words);
}
function sliders() {
  const one = (name, label, low, high, pace, title) => {
    const input = el("input", { type: "range", id: `what-${name}`, name, min: low, max: high, step: pace, title,
      list: name === "price" ? null : "ticks" });
    return el("div", { class: "slider field-of" }, el("label", { for: `what-${name}` }, label), el("output", { for: `what-${name}` }), input);
  };
  $("sliders").replaceChildren(
    ...Object.entries(SLIDERS).map(([name, label]) => one(name, label, -3, 3, 0.25, known.factors[name])),
    one("price", "Price", 0, 12, 0.1, "USD an hour and device"),
    el("datalist", { id: "ticks" }, [-3, -2, -1, 0, 1, 2, 3].map((at) => el("option", { value: at }))));
}
function complain(field, words) {
  document.querySelectorAll(".wrong").forEach((one) => one.remove());
  document.querySelectorAll("[aria-invalid]").forEach((one) => {
    one.removeAttribute("aria-invalid"); one.removeAttribute("aria-describedby");
  });
  if (!words) return;
  const input = field === "drop" ? null : $("form").elements[field];
  if (field === "drop") { $("dropped").textContent = words; return; }
  if (input) {
    input.setAttribute("aria-invalid", "true");
    input.setAttribute("aria-describedby", "wrong");
    input.parentElement.append(el("p", { class: "wrong", id: "wrong" }, words));
  }
  say(words, true);
}
function say(words, wrong = false) {
  $("status").textContent = words;
  $("status").classList.toggle("warn", wrong);
}

// -- asking --------------------------------------------------------------------------------------
async function get(view, said, signal) {
  const answer = await (early.get(`${view}?${said}`) ?? fetch(`view/${view}?${said}`, { signal }));
  early.clear();
  const found = answer.headers.get("content-type")?.includes("json")
    ? await answer.json() : { field: "", words: await answer.text() };
  if (!answer.ok) throw Object.assign(new Error(found.words), { field: found.field });
  return found;
}
async function find() {
  search?.abort(); clearTimeout(resting);
  const mine = search = new AbortController();
  busy(true);
  const late = setTimeout(() => say("Searching… a large question takes seconds."), 1200);
  say(shown ? "Searching…" : "Searching the first answer…");
  try {
    const said = query(); said.delete("plan");
    const found = await get("ranking", said, mine.signal);
    complain();
    settled += 1;
    envelope = found; shown = found.data;
    if (plan && !shown.plans.some((one) => one.plan === plan)) plan = "";
    draw();
    say(`${shown.fitting} of ${shown.tried} combinations of strategies fit; worked out in ${seconds(found.took)}.`);
    look();
  } catch (error) {
    if (error.name !== "AbortError") complain(error.field ?? "", error.message);
  } finally {
    clearTimeout(late);
    if (search === mine) busy(false);
  }
}
// While a slider moves: the same plans, priced again; the latest question counts, one at a time.
async function reprice() {
  const begin = performance.now();
  if (again) { again.more = true; return; }
  const mine = again = { more: false, settled };
  try {
    const said = query(); said.delete("plan");
    const found = await get("again", said);
    if (mine.settled !== settled) return; // a search was faster, and knows better
    complain();
    const at = { time: (one) => one.seconds.iteration, memory: (one) => one.memory.total };
    const by = at[fields.objective] ?? at.time;
    found.data.plans.sort((a, b) => b.feasible - a.feasible || by(a) - by(b));
    shown = { ...found.data, fitting: shown.fitting, tried: shown.tried };
    envelope = found;
    draw();
    say("The same plans, priced again; a search follows.");
    requestAnimationFrame(() => performance.measure("redraw", { start: begin }));
  } catch (error) {
    complain(error.field ?? "", error.message);
  } finally {
    again = null;
    if (mine.more && mine.settled === settled) reprice();
  }
}
const busy = (is) => $("ranking")?.setAttribute("aria-busy", is);

// -- drawing -------------------------------------------------------------------------------------
const picked = () => plan || shown.plans[0].plan;
function draw() {
  document.title = `${shown.model} on ${shown.system}, ${shown.devices} devices`;
  headline();
  ranking();
  breakdown();
  memory();
  share("ranking", envelope);
}
function tile(number, what, more) {
  return el("div", { class: "tile" }, el("b", {}, number), el("span", {}, what), more ? el("span", {}, more) : null);
}
function headline() {
  const best = shown.plans.find((one) => one.plan === picked()) ?? shown.plans[0];
  if (!best.feasible) {
    $("headline").replaceChildren(el("p", {}, el("strong", { class: "warn" }, "No plan fits."), " Nearest misses stand below:"),
      el("code", { class: "plan" }, best.plan), el("ul", {}, best.broken.map((one) => el("li", {}, one))));
    return;
  }
  const rates = best.rates ?? {}, price = envelope.usd_per_hour;
  const first = best === shown.plans[0] && !plan;
  const hours = best.seconds.iteration * shown.devices / 3600;
  const whole = rates.device_hours_per_billion_tokens ?? rates.device_hours_per_epoch;
  const of = rates.device_hours_per_billion_tokens ? "a billion tokens" : "an epoch";
  const cost = whole ? [whole, of] : [hours, "an iteration"];
  const usd = price ? `${three(cost[0] * price)} USD` : null;
  $("headline").replaceChildren(...[
    el("p", {}, first ? (shown.objective && shown.objective !== "time" ? `Best by ${shown.objective}:` : "The way to split it:") : "The plan that was picked:"),
    el("code", { class: "plan" }, best.plan),
    el("div", { class: "tiles" },
      tile(seconds(best.seconds.iteration), "an iteration", `${seconds(best.seconds.low)} to ${seconds(best.seconds.high)} (90 %)`),
      tile(bytes(best.memory.total), `of ${bytes(best.capacity)} a device`, `fits with ${chance(best.fits)}`),
      tile(rates.tokens_per_second ? `${three(rates.tokens_per_second)} tokens/s` : `${three(best.samples_per_second)} samples/s`,
        `${three((rates.flops_per_device ?? 0) / 1e12)} TFLOP/s a device`, `MFU ${percent(rates.mfu ?? 0)}`),
      tile(usd ?? `${three(cost[0])} device-hours`, cost[1], usd ? `${three(cost[0])} device-hours at ${three(price)} USD` : null)),
    ...(shown.warnings ?? []).map((one) => el("p", { class: "warn" }, `${one.field}: ${one.what}`)),
  ]);
}
function ranking() {
  const plans = shown.plans, top = Math.max(...plans.map((one) => one.seconds.high)) || 1;
  const head = ["#", "Plan", "Iteration", "90 % interval", "Memory", "Fits", "Best of all"];
  const rows = plans.map((one, at) => {
    const { iteration, low, high } = one.seconds;
    const line = el("i"), dot = el("b");
    line.style.left = `${100 * low / top}%`; line.style.width = `${100 * (high - low) / top}%`;
    dot.style.left = `${100 * iteration / top}%`;
    return el("tr", { class: one.feasible ? null : "miss" },
      el("td", {}, String(at + 1)),
      el("td", {}, el("button", { type: "button", class: "pick", "aria-pressed": String(one.plan === picked()),
        onclick: () => pick(one.plan) }, one.plan),
        one.feasible ? null : el("div", {}, one.broken.join("; "))),
      el("td", { class: "n", "data-h": "iteration" }, seconds(iteration)),
      el("td", { class: "interval" }, el("div", { class: "range", role: "img",
        "aria-label": `${seconds(low)} to ${seconds(high)}`, title: `${seconds(low)} to ${seconds(high)}` }, line, dot)),
      el("td", { class: "n", "data-h": "memory" }, bytes(one.memory.total)),
      el("td", { class: "n", "data-h": "fits" }, chance(one.fits)),
      el("td", { class: "n", "data-h": "best of all" }, one.probability_best === undefined ? "…" : chance(one.probability_best)));
  });
  const table = el("table", { class: "ranking" }, el("caption", { class: "wait" }),
    el("thead", {}, el("tr", {}, head.map((word, at) => el("th", { scope: "col", class: [2, 4, 5, 6].includes(at) ? "n" : null }, word)))),
    el("tbody", {}, rows));
  table.querySelector("caption").remove();
  const kept = document.activeElement?.classList.contains("pick") ? document.activeElement.textContent : null;
  body("ranking").replaceChildren(el("div", { class: "table" }, table));
  if (kept) [...document.querySelectorAll(".pick")].find((one) => one.textContent === kept)?.focus();
}
function pick(name) {
  plan = name === shown.plans[0].plan ? "" : name;
  remember();
  headline(); ranking(); look();
}
// Stacked bars, a plan each: parts are [name, class, value].
function bars(view, plans, parts, total, end, mark) {
  const top = Math.max(...plans.map(end)) * 1.02 || 1;
  const used = new Map();
  const rows = plans.map((one) => {
    const found = parts(one).filter(([, , value]) => value > 0.003 * top);
    const track = el("div", { class: "track", role: "img",
      "aria-label": found.map(([name, , value]) => `${name} ${total.show(value)}`).join(", ") });
    for (const [name, kind, value] of found) {
      used.set(name, kind);
      const piece = el("i", { class: kind, title: `${name}: ${total.show(value)}` });
      piece.style.width = `${100 * value / top}%`;
      track.append(piece);
    }
    if (mark) { const line = el("b"); line.style.left = `${100 * mark(one) / top}%`; track.append(line); }
    const over = mark && total.of(one) > mark(one);
    return el("li", { class: over ? "over" : null }, el("div", { class: "name" }, el("code", {}, one.plan),
      el("span", {}, over ? `${total.show(total.of(one) - mark(one))} short` : total.show(total.of(one)))), track);
  });
  body(view).replaceChildren(
    el("ul", { class: "legend", "aria-label": "Colours" }, [...used].map(([name, kind]) => el("li", {}, el("i", { class: kind }), name))),
    el("ul", { class: "bars" }, rows));
}
// Exchanges of one strategy have one name: there are more of them than colours that can be told apart.
function exchanges(plans) {
  const each = [...new Set(plans.flatMap((one) => one.exchange.map((sent) => sent.what)))];
  const of = (what) => what.split(": ")[0];
  const many = (axis) => each.filter((one) => of(one) === axis).length;
  return (what) => (many(of(what)) === 1 ? what : `${of(what)}: ${many(of(what))} exchanges`);
}
const drawn = () => shown.plans.slice(0, 8);
function breakdown() {
  const called = exchanges(drawn()), names = new Map();
  for (const one of drawn()) for (const sent of one.exchange)
    names.set(called(sent.what), (names.get(called(sent.what)) ?? 0) + sent.exposed);
  const ranked = [...names].sort((a, b) => b[1] - a[1]).map(([name]) => name);
  const colours = ranked.slice(0, LOOKS).map((name, at) => [name, `exchange-${at}`, (what) => what === name]);
  const others = ["other exchanges", `exchange-${LOOKS}`, (what) => ranked.indexOf(what) >= LOOKS];
  bars("breakdown", drawn(), (one) => [
    ...Object.entries(one.compute).map(([name, value]) => [name, `part-${name}`, value]),
    ...[...colours, others].map(([name, kind, is]) => [name, kind,
      one.exchange.filter((sent) => is(called(sent.what))).reduce((sum, sent) => sum + sent.exposed, 0)]),
    ["waiting for samples", "part-reading", one.reading?.exposed ?? 0],
  ], { of: (one) => one.seconds.iteration, show: seconds }, (one) => one.seconds.iteration);
}
function memory() {
  const kinds = Object.keys(known.colours.kinds);
  bars("memory", drawn(), (one) => kinds.map((kind) => [kind, `kind-${kind}`, one.memory[kind] ?? 0]),
    { of: (one) => one.memory.total, show: bytes }, (one) => Math.max(one.memory.total, one.capacity), (one) => one.capacity);
}

// -- sections, pictures, what can be copied ------------------------------------------------------
const body = (view) => $(view).querySelector(".body");
function sections() {
  const made = ["ranking", "breakdown", "memory", "timeline", "network", "scaling", "pareto"].map((view) => {
    const { title, told: what } = known.views[view];
    return el("section", { id: view, class: HALF.includes(view) ? "half" : null, "aria-labelledby": `${view}-title` },
      el("h2", { id: `${view}-title`, tabindex: "-1" }, title), el("p", { class: "told" }, what),
      el("details", { class: "share", ontoggle: (event) => event.target.open && shareOf(view) },
        el("summary", { "aria-label": `Copy or save: ${title}` }, "Copy or save"), el("div")),
      el("div", { class: "body" }, el("p", { class: "wait" }, "…")));
  });
  $("sections").replaceChildren(...made);
  $("views").replaceChildren(...made.map((one) => el("a", { href: `#${one.id}`, onclick: (event) => {
    event.preventDefault(); remember(false, one.id); go(one.id);
  } }, known.views[one.id].title)));
  const seen = new IntersectionObserver((entries) => entries.forEach((one) => {
    one.target.dataset.seen = one.isIntersecting ? "yes" : "";
    if (one.isIntersecting) look();
  }), { rootMargin: "200px" });
  for (const view of PICTURES) seen.observe($(view));
}
function go(view) {
  $(view)?.scrollIntoView();
  $(`${view}-title`)?.focus({ preventScroll: true });
}
const asked = (view) => {
  const said = query(["timeline", "network"].includes(view) ? { plan: shown ? picked() : plan } : {});
  if (!["timeline", "network"].includes(view)) said.delete("plan");
  if (PHONE.matches && known.views[view].forms.includes("svg")) said.set("width", "390");
  return String(said);
};
// Pictures of the question at hand, of those that are on the screen.
function look() {
  if (!shown || search?.signal.aborted) return;
  for (const view of PICTURES) if ($(view).dataset.seen && pictures.get(view) !== asked(view)) picture(view);
}
async function picture(view) {
  const address = asked(view);
  pictures.set(view, address);
  $(view).setAttribute("aria-busy", "true");
  const words = el("p", { class: "wait", role: "status" }, "Drawing…");
  const wait = setTimeout(() => {
    if ($(view).querySelector("svg")) body(view).prepend(words); else body(view).replaceChildren(words);
  }, 400);
  try {
    if (known.views[view].sized) await sizes(view, address, words);
    if (pictures.get(view) !== address) return;
    const found = await get(view, address);
    if (pictures.get(view) !== address) return;
    const figure = el("figure", { tabindex: "0", "aria-label": known.views[view].title });
    figure.append(parsed(found.picture), el("figcaption", {}, found.note || ""));
    body(view).replaceChildren(figure);
    share(view, found);
  } catch (error) {
    if (pictures.get(view) === address) body(view).replaceChildren(el("p", { class: "wait" }, error.message));
  } finally {
    clearTimeout(wait);
    if (pictures.get(view) === address) $(view).setAttribute("aria-busy", "false");
  }
}
// Each number of devices is a search of its own, asked for while somebody still wants the picture.
async function sizes(view, address, words) {
  let next = 0, of = 1, done = 0;
  const one = async () => {
    const answer = await fetch(`size/${view}/${next++}?${address}`);
    of = answer.ok ? (await answer.json()).of : 0; // what is wrong the view itself will say
    words.textContent = `Searching on fewer and more devices: ${done += 1} of ${of}…`;
  };
  const rest = async () => { while (next < of && pictures.get(view) === address) await one(); };
  words.textContent = "Searching on fewer and more devices…";
  await one();
  await Promise.all([rest(), rest()]);
}
// Styles of a picture are set one by one: the content policy lets no markup carry any.
function parsed(text) {
  const found = new DOMParser().parseFromString(text.replaceAll(' style="', ' data-style="'), "image/svg+xml");
  const svg = document.importNode(found.documentElement, true);
  for (const one of [svg, ...svg.querySelectorAll("[data-style]")]) {
    if (one.dataset.style) one.style.cssText = one.dataset.style;
    delete one.dataset.style;
  }
  return svg;
}
const told_ = new Map(); // view -> what its address, command and Python are
function share(view, found) {
  told_.set(view, found);
  if ($(view).querySelector(".share").open) shareOf(view);
}
async function shareOf(view) {
  const place = $(view).querySelector(".share > div");
  const local = ["breakdown", "memory"].includes(view);
  let found = told_.get(view);
  if (local) {
    place.replaceChildren(el("p", { class: "wait" }, "…"));
    try { found = await get(view, asked(view)); } catch (error) { place.replaceChildren(error.message); return; }
  }
  if (!found) { place.replaceChildren(el("p", { class: "wait" }, "Not there yet.")); return; }
  const forms = [...known.views[view].forms.map((form) => [view, form]),
    ...(local ? [["ranking", "csv"], ["ranking", "json"]] : []), ["report", "html"]];
  const text = (title, words) => [el("h3", {}, title), el("pre", { tabindex: "0" }, words), copier(title, () => words)];
  place.replaceChildren(copier("Address", () => absolute(view)),
    ...forms.map(([name, form]) => el("a", { href: `download/${name}.${form}?${asked(view)}`, download: true },
      name === "report" ? "Report" : form.toUpperCase())),
    ...text("Command line", found.command), ...text("Python", found.python));
}
function copier(what, text) {
  const label = `Copy ${what.toLowerCase().replace("python", "Python")}`;
  const button = el("button", { type: "button", onclick: async () => {
    try { await navigator.clipboard.writeText(text()); button.textContent = "Copied"; } catch {
      const area = el("textarea"); area.value = text(); document.body.append(area); area.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Cannot copy here"; area.remove();
    }
    setTimeout(() => { button.textContent = label; }, 1500);
  } }, label);
  return button;
}

// -- dropping ------------------------------------------------------------------------------------
async function drop(file) {
  if (!file) return;
  if (file.size > 5 * 2 ** 20) { $("dropped").textContent = "More than 5 MB."; return; }
  $("dropped").textContent = `Reading ${file.name}…`;
  const said = new URLSearchParams({ name: file.name, system: fields.system ?? "" });
  const answer = await fetch(`drop?${said}`, { method: "POST", body: file });
  const found = await answer.json().catch(() => ({ words: "It could not be read." }));
  if (!answer.ok) { $("dropped").textContent = found.words; return; }
  known = await (await fetch("known")).json();
  const field = { models: "model", systems: "system", datasets: "dataset", software: "software" }[found.kind];
  fields[field] = found.name;
  if (field === "model") { delete fields.dataset; delete fields.sequence; }
  plan = "";
  $("dropped").textContent = `${found.name}\n${found.told}`;
  fill(); remember(); find();
}

// -- the beginning -------------------------------------------------------------------------------
const early = new Map(); // what the address asks, while the names for the fields are on their way
{
  const said = new URLSearchParams(location.search);
  for (const name of ["plan", "view"]) said.delete(name);
  if (said.get("model")) early.set(`ranking?${said}`, fetch(`view/ranking?${said}`));
}
known = await (await fetch("known")).json();
const paint = document.createElement("link");
paint.rel = "stylesheet"; paint.href = "palette.css"; document.head.append(paint);
sliders(); sections();
const wanted = fromAddress();
find().then(() => wanted && go(wanted));
PHONE.addEventListener("change", () => look());
addEventListener("popstate", () => { const view = fromAddress(); find().then(() => view && go(view)); });
$("form").addEventListener("submit", (event) => event.preventDefault());
$("form").addEventListener("input", (event) => {
  const input = event.target;
  if (input.type !== "range") return;
  told(input);
  fields[input.name] = factor(input);
  remember(true);
  if (shown) reprice();
  clearTimeout(resting);
  resting = setTimeout(find, REST);
});
$("form").addEventListener("change", (event) => {
  const input = event.target;
  if (input.type === "file") { drop(input.files[0]); input.value = ""; return; }
  if (input.type === "range") { clearTimeout(resting); resting = setTimeout(find, REST); return; }
  fields[input.name] = input.value.trim();
  if (input.name === "objective" && input.value === "time") delete fields.objective;
  if (input.name === "model") { delete fields.dataset; delete fields.sequence; delete fields.software; fill(); }
  plan = "";
  remember(); find();
});
$("reset").addEventListener("click", () => {
  for (const name of [...Object.keys(known.factors), "price"]) delete fields[name];
  fill(); remember(); find();
});
for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, (event) => {
  event.preventDefault();
  $("dropzone").classList.toggle("over", kind === "dragover");
  if (kind === "drop") drop(event.dataTransfer.files[0]);
});
