/* The page: its address, its keys, and new samples. */
"use strict";

const POLL_MS = 2000;
const main = document.getElementById("main");
let state = null;
let view = null;
let shows = 0; // number of the view that is being shown; an answer for an earlier one is dropped
let row = -1; // of the list, where the keyboard is
let cancel = null;

// What stands at the top, and the views that belong to it.
const VIEWS = [
  ["Report", "#/report", ["report"], () => state.report],
  ["Overview", "#/overview", ["overview"]],
  ["Samples", "#/samples", ["samples", "sample", "group"]],
  ["Problems", "#/problems", ["problems", "problem"]],
  ["Compare", "#/compare", ["compare", "pair"], () => comparable(state)],
  ["Datasets", "#/datasets", ["datasets", "dataset"]],
];

/** Return the parts of the address: `{name, parts, chosen}`. */
function address() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const chosen = {};
  for (const [name, value] of new URLSearchParams(query || "")) {
    chosen[name] = name in chosen ? [chosen[name], value].flat() : value;
  }
  let parts;
  try {
    parts = path.split("/").filter((part) => part).map(decodeURIComponent);
  } catch {
    parts = ["nowhere"];
  }
  return { name: parts[0] || "overview", parts: parts.slice(1), chosen };
}

const go = (parts, chosen) => {
  const next = link(parts, chosen);
  if (next === location.hash) show();
  else location.hash = next;
};

function navigation(name) {
  const tabs = VIEWS.filter(([, , , has]) => (has ? has() : state.runs.length));
  put(document.getElementById("views"), tabs.map(([title, href, names]) =>
    h("a", { href, "aria-current": names.includes(name) ? "page" : null }, title)));
  const nav = document.getElementById("views");
  const current = nav.querySelector("[aria-current]");
  if (current) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - nav.clientWidth / 2;
  const shares = state.runs.map((run) => run.read);
  const growing = state.runs.some(grows);
  const reading = document.getElementById("reading");
  reading.textContent = shares.some((share) => share < 1)
    ? `reading, ${format.percent(Math.min(...shares))}` : growing ? "live" : "";
  reading.classList.toggle("live", growing);
}

/** Mark which state of the page is there. */
function settled(hash) {
  main.removeAttribute("aria-busy");
  main.dataset.shown = hash;
}

function fault(error, hash) {
  settled(hash);
  if (error.status === 401) return askForToken(error);
  put(main, h("h1", error.status === 404 ? "Not found" : "Error"),
    h("p.warned", { role: "alert" }, error.message),
    h("p", h("button", { type: "button", onclick: () => show() }, "try again"), " ",
      h("a", { href: "#/" }, "overview")));
  return null;
}

function askForToken(error) {
  const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
  const onsubmit = (event) => {
    event.preventDefault();
    setToken(input.value);
    start();
  };
  put(main, h("h1", "Enter the token"), h("p", error.message),
    h("form.filters", { onsubmit }, h("label.field.wide", h("span", "token of the server"), input),
      h("button.main", { type: "submit" }, "show")),
    hint("The page keeps it until you close this tab."));
  input.focus();
}

/** Show the view of the address.  `quiet`: without a word to readers. */
async function show({ quiet } = {}) {
  const number = (shows += 1);
  if (cancel) cancel.abort();
  cancel = new AbortController();
  const { signal } = cancel;
  const { hash } = location;
  const { name, parts, chosen } = address();
  main.setAttribute("aria-busy", "true");
  try {
    if (!state) state = await source.get("state", signal);
    if (name === "overview" && state.report && !location.hash.slice(2)) return location.replace("#/report");
    navigation(name);
    if (!Object.hasOwn(views, name)) throw new SourceError(`There is no view ${JSON.stringify(name)}.`, 404);
    const next = await views[name]({ parts, chosen, state, go, get: (path) => source.get(path, signal) });
    if (number !== shows) return;
    const kept = focusOf();
    view = next;
    row = -1;
    put(main, view.element);
    disposeCharts();
    settled(hash);
    document.title = `${view.title} · consensuspr`;
    if (view.goOn) view.goOn().catch(report);
    if (!quiet) {
      restore(kept);
      tell(view.title);
    }
  } catch (error) {
    if (number !== shows || error.name === "AbortError") return;
    view = null;
    report(error);
    fault(error, hash);
  }
}

/** Log an error that is a defect of the page. */
function report(error) {
  if (error.name !== "AbortError" && !(error instanceof SourceError)) console.error(error);
}

// A control that changed the address is made anew with the view: its successor gets the focus.
function focusOf() {
  const control = document.activeElement;
  if (!control || !main.contains(control)) return null;
  const text = control.tagName === "BUTTON" ? control.textContent : null;
  return { id: control.id, name: control.getAttribute("name"), text };
}

function restore(kept) {
  if (!kept) return;
  const { id, name, text } = kept;
  const found = (id && document.getElementById(id))
    || (name && main.querySelector(`[name="${CSS.escape(name)}"]`))
    || (text && [...main.querySelectorAll("button")].find((one) => one.textContent === text));
  if (found && found !== main) found.focus({ preventScroll: true });
}

let shownPath = location.hash.split("?")[0];
window.addEventListener("hashchange", async () => {
  const path = location.hash.split("?")[0];
  const sameView = path === shownPath;
  shownPath = path;
  await show();
  if (sameView) return;
  window.scrollTo(0, 0);
  if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
});

/** Ask for new samples, while a run may grow. */
async function poll() {
  try {
    if (state && !document.hidden) {
      const fresh = await source.get("state");
      // A server that was gone may be another one.
      const back = document.body.classList.contains("disconnected");
      const changed = back || fresh.revision !== state.revision;
      const first = state.runs.every((run) => !run.samples);
      state = fresh;
      navigation(address().name);
      if (changed && view) {
        if (first) await show({ quiet: true });
        else if (view.update) await view.update(fresh);
      }
      if (back && !view) await show({ quiet: true });
      document.body.classList.remove("disconnected");
    }
  } catch (error) {
    if (error.status === 0) {
      document.body.classList.add("disconnected");
      document.getElementById("reading").textContent = "the server does not answer";
    } else report(error);
  }
  setTimeout(poll, POLL_MS);
}

async function switchMode() {
  setRendered(!isRendered());
  await show();
  tell(isRendered() ? "mathematics is set" : "as it was written");
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);

const HELP_KEYS = [
  ["j, k", "next and previous row; in a sample or a pair, next and previous one of the list"],
  ["Enter", "open the row"], ["g", "the group of this sample, side by side"],
  ["p", "the problem of this sample"], ["m", "mathematics set, or its source"],
  ["[ , ]", "previous and next page"], ["/", "search"], ["o, s, c", "overview, samples, compare"],
  ["?", "this help"],
];
const HELP_WORDS = [
  ["Acc", "1 if the final answer is right, 0 if it is wrong; unknown if that is undecided"],
  ["Node", "a result on the way to the answer, found in several right solutions of the problem"],
  ["NCR", "node coverage: the share of the problem's nodes that a text reaches"],
  ["TPN", "tokens per node that was reached"],
  ["Guard", "factor below 1 for a text that states far more values than the problem needs"],
  ["Group", "the samples of one prompt at one step, which the trainer compares with each other"],
];

function help() {
  const dialog = document.getElementById("help");
  const keys = HELP_KEYS.map(([key, words]) => [h("kbd", key), words]);
  put(dialog, h("h2", { id: "help-title" }, "Keys and terms"), pairs(keys), pairs(HELP_WORDS),
    h("button.main", { type: "button", onclick: () => dialog.close() }, "close"));
  dialog.showModal();
}
document.getElementById("help-open").addEventListener("click", help);

function move(by) {
  const rows = [...main.querySelectorAll("tr[data-href]")];
  if (!rows.length) {
    const to = view && (by > 0 ? view.next : view.previous);
    if (to) location.hash = to;
    return;
  }
  row = Math.max(0, Math.min(rows.length - 1, row + by));
  const anchor = rows[row].querySelector("a.row");
  anchor.focus({ preventScroll: true });
  rows[row].scrollIntoView({ block: "nearest" });
}

const follow = (name) => {
  const at = document.activeElement && document.activeElement.closest("tr[data-href]");
  const href = (at && at.dataset[name]) || (view && view[name]);
  if (href) location.hash = href;
};
const press = (key) => {
  const button = main.querySelector(`[aria-keyshortcuts="${key}"]`);
  if (button) button.click();
};
const search = () => {
  const field = document.getElementById("search");
  if (field) field.focus();
  else go(["samples"], {});
};
const DONE = {
  j: () => move(1), k: () => move(-1), g: () => follow("group"), p: () => follow("problem"),
  m: switchMode, "/": search, "?": help, "[": () => press("["), "]": () => press("]"),
  o: () => go(["overview"]), s: () => go(["samples"]), c: () => go(["compare"]),
};
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (event.target.closest("input, select, textarea")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (Object.hasOwn(DONE, event.key)) {
    event.preventDefault();
    DONE[event.key]();
  }
});
document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address says which view is shown
  main.focus();
});

async function start() {
  state = null;
  await show({ quiet: true });
}

start().then(() => source.kept || poll());
