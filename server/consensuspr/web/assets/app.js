/* The page: its address, its keys, and what is new. */
(function (app) {
  "use strict";

  const { h, format } = app;
  const POLL_MS = 2000;
  const main = document.getElementById("main");
  let state = null;
  let view = null;
  let shows = 0; // number of the view that is being shown; an answer for an earlier one is dropped
  let row = -1; // of the list, where the keyboard is
  let cancel = null;

  // What stands at the top, and the views that belong to it.
  const VIEWS = [
    ["Report", "#/report", ["report"]],
    ["Overview", "#/overview", ["overview"]],
    ["Samples", "#/samples", ["samples", "sample", "group"]],
    ["Problems", "#/problems", ["problems", "problem"]],
    ["Compare", "#/compare", ["compare", "pair"]],
    ["Datasets", "#/datasets", ["datasets", "dataset"]],
  ];

  /** Return what the address says: `{name, parts, chosen}`. */
  function place() {
    const [path, query] = (location.hash.slice(1) || "/").split("?");
    const chosen = {};
    for (const [name, value] of new URLSearchParams(query || "")) {
      chosen[name] = name in chosen ? [chosen[name], value].flat() : value; // a list is given one by one
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
    const next = app.link(parts, chosen);
    if (next === location.hash) app.show();
    else location.hash = next;
  };

  function navigation(name) {
    // A page may hold a report and no runs, or runs and no report.
    document.getElementById("views").replaceChildren(...VIEWS
      .filter(([title]) => (title === "Report" ? state.report : title === "Compare" ? app.comparable(state) : state.runs.length))
      .map(([title, href, names]) => h("a", { href, "aria-current": names.includes(name) ? "page" : null }, title)));
    const nav = document.getElementById("views");
    const current = nav.querySelector("[aria-current]");
    if (current) nav.scrollLeft = current.offsetLeft - nav.offsetLeft - nav.clientWidth / 2;
    const reading = state.runs.filter((run) => run.read < 1);
    const growing = state.runs.filter(app.grows);
    document.getElementById("reading").textContent = reading.length
      ? `reading, ${format.percent(Math.min(...reading.map((run) => run.read)))}`
      : growing.length ? "live" : "";
    document.getElementById("reading").classList.toggle("live", growing.length > 0);
  }

  /** Say which state of the page is there, to whoever drives it. */
  function shown(hash) {
    main.removeAttribute("aria-busy");
    main.dataset.shown = hash;
  }

  function fault(error, hash) {
    shown(hash);
    if (error.status === 401) return askForToken(error);
    main.replaceChildren(h("h1", {}, error.status === 404 ? "Not found" : "Error"), h("p", { class: "warned", role: "alert" }, error.message),
      h("p", {}, h("button", { type: "button", onclick: () => app.show() }, "try again"), " ", h("a", { href: "#/" }, "overview")));
    return null;
  }

  function askForToken(error) {
    const input = h("input", { type: "password", name: "token", autocomplete: "off", required: true });
    main.replaceChildren(h("h1", {}, "Enter the token"), h("p", {}, error.message),
      h("form", { class: "filters", onsubmit: (event) => { event.preventDefault(); app.setToken(input.value); start(); } },
        h("label", { class: "field wide" }, h("span", {}, "token of the server"), input), h("button", { type: "submit", class: "main" }, "show")),
      h("p", { class: "about" }, "The page keeps it until you close this tab."));
    input.focus();
  }

  /** Show what the address says. */
  app.show = async function show(options) {
    const { quiet } = options || {};
    const number = (shows += 1);
    if (cancel) cancel.abort();
    cancel = new AbortController();
    const { signal } = cancel;
    const { hash } = location;
    const { name, parts, chosen } = place();
    main.setAttribute("aria-busy", "true");
    try {
      if (!state) state = await app.source.get("state", signal);
      if (name === "overview" && state.report && !location.hash.slice(2)) return location.replace("#/report");
      navigation(name);
      if (!Object.hasOwn(app.views, name)) throw new app.SourceError(`There is no view ${JSON.stringify(name)}.`, 404);
      const next = await app.views[name]({ parts, chosen, state, go, get: (path) => app.source.get(path, signal) });
      if (number !== shows) return;
      const kept = focusOf();
      view = next;
      row = -1;
      main.replaceChildren();
      app.fill(main, view.element);
      app.disposeCharts();
      shown(hash);
      if (view.onshown) view.onshown();
      document.title = `${view.title} · consensuspr`;
      if (view.goOn) view.goOn().catch(ignoreAborted);
      if (!quiet) {
        restore(kept);
        app.tell(view.title);
      }
    } catch (error) {
      if (number !== shows || error.name === "AbortError") return;
      view = null;
      if (!(error instanceof app.SourceError)) console.error(error);
      fault(error, hash);
    }
  };

  function ignoreAborted(error) {
    if (error.name !== "AbortError" && !(error instanceof app.SourceError)) throw error;
  }

  // A control that changed the address is made anew with the view: whoever was in it stays there.
  function focusOf() {
    const one = document.activeElement;
    if (!one || !main.contains(one)) return null;
    return { id: one.id, name: one.getAttribute("name"), text: one.tagName === "BUTTON" ? one.textContent : null };
  }

  function restore(kept) {
    const found = kept && ((kept.id && document.getElementById(kept.id)) ||
      (kept.name && main.querySelector(`[name="${CSS.escape(kept.name)}"]`)) ||
      (kept.text && [...main.querySelectorAll("button")].find((one) => one.textContent === kept.text)));
    if (found && found !== main) found.focus({ preventScroll: true });
  }

  let shownPath = location.hash.split("?")[0];
  window.addEventListener("hashchange", async () => {
    const path = location.hash.split("?")[0];
    const sameView = path === shownPath;
    shownPath = path;
    await app.show();
    if (sameView) return;
    window.scrollTo(0, 0);
    if (!main.contains(document.activeElement)) main.focus({ preventScroll: true });
  });

  /** Ask for what is new, while something may grow. */
  async function poll() {
    try {
      if (state && !document.hidden) {
        const fresh = await app.source.get("state");
        const back = document.body.classList.contains("lost"); // a server that was gone may be another one
        const changed = back || fresh.revision !== state.revision;
        const first = state.runs.every((run) => !run.samples);
        state = fresh;
        navigation(place().name);
        if (changed && view) {
          if (first) await app.show({ quiet: true });
          else if (view.update) await view.update(fresh);
        }
        if (back && !view) await app.show({ quiet: true });
        document.body.classList.remove("lost");
      }
    } catch (error) {
      if (error.status === 0) {
        document.body.classList.add("lost");
        document.getElementById("reading").textContent = "the server does not answer";
      } else if (error.name !== "AbortError") console.error(error);
    }
    setTimeout(poll, POLL_MS);
  }

  app.switchMode = function switchMode() {
    app.setRendered(!app.rendered());
    if (view && view.redraw) view.redraw();
    document.querySelectorAll(".mode").forEach((one) => one.setAttribute("aria-pressed", String(!app.rendered())));
    app.tell(app.rendered() ? "mathematics is set" : "as it was written");
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", app.recolor);

  const KEYS = [
    ["j, k", "next and previous row; in a sample or a pair, next and previous one of the list"], ["Enter", "open the row"],
    ["g", "the group of this sample, side by side"], ["p", "the problem of this sample"], ["m", "mathematics set, or its source"],
    ["[ , ]", "previous and next page"], ["/", "search"], ["o, s, c", "overview, samples, compare"],
    ["?", "this help"],
  ];
  const WORDS = [
    ["Acc", "1 where the final answer is right, 0 where it is wrong; unknown where that could not be decided"],
    ["Node", "a result on the way to the answer, found in several right solutions of the problem"],
    ["NCR", "node coverage: the share of the problem's nodes that a text reaches"],
    ["TPN", "tokens per node that was reached"],
    ["Guard", "factor below 1 for a text that states far more values than the problem needs"],
    ["Group", "the samples of one prompt at one step, which the trainer compares with each other"],
  ];

  function help() {
    const dialog = document.getElementById("help");
    const list = (pairs, wrap) => h("dl", {}, pairs.map(([name, words]) => [h("dt", {}, wrap ? h("kbd", {}, name) : name), h("dd", {}, words)]));
    dialog.replaceChildren(h("h2", { id: "help-title" }, "Keys and terms"), list(KEYS, true), list(WORDS, false),
      h("button", { type: "button", class: "main", onclick: () => dialog.close() }, "close"));
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

  const rowOf = () => document.activeElement && document.activeElement.closest("tr[data-href]");
  const follow = (name) => {
    const at = rowOf();
    const href = (at && at.dataset[name]) || (view && view[name]);
    if (href) location.hash = href;
  };
  const DONE = {
    j: () => move(1), k: () => move(-1), g: () => follow("group"), p: () => follow("problem"), m: () => app.switchMode(),
    "/": () => document.getElementById("search") ? document.getElementById("search").focus() : go(["samples"], {}), "?": help,
    o: () => { location.hash = "#/overview"; }, s: () => { location.hash = "#/samples"; }, c: () => { location.hash = "#/compare"; },
    "[": () => press("["), "]": () => press("]"),
  };
  const press = (key) => {
    const button = main.querySelector(`[aria-keyshortcuts="${key}"]`);
    if (button) button.click();
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
    await app.show({ quiet: true });
  }

  start().then(() => app.source.kept || poll());
})((window.consensuspr = window.consensuspr || {}));
