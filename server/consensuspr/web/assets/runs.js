/* Runs over one another: curves by step, and where to look first; and a report's sections. */
(function (app) {
  "use strict";

  const { h, format, link } = app;
  const PERCENT = { scale: 100, decimals: 0, unit: "\u202f%" };
  const INT = { decimals: 0 };
  const SMOOTH = [["5", "over 5 points"], ["20", "over 20 points"]];

  // What is asked first of a run that trains, in the order in which one answers the other.
  const CURVES = [
    ["reward", "Reward", "what the policy is trained on, penalties included", null],
    ["acc", "Acc", "share of final answers that are right", PERCENT],
    ["ncr", "NCR", "share of a problem's nodes that a text reaches, after the guard", PERCENT],
    ["ncr_of_wrong", "NCR of wrong answers", "grows where nodes are named and nothing is solved", PERCENT],
    ["guarded", "Lowered by the guard", "share of samples that state more than the guard allows", PERCENT],
    ["num_tokens", "Length", "tokens per sample", { decimals: null }],
    ["tpn", "TPN", "tokens per node that is reached", null],
    ["ncr_raw", "NCR before the guard", "beside NCR: what the guard takes away", PERCENT],
    ["failed", "Without a reward", "samples whose status is not OK; none of them counts as 0", INT],
  ];

  const FRESH_S = 300; // a run that got nothing for so long is not said to grow

  const known = (value) => value !== null && value !== undefined;

  /** Return whether a run is being written to. */
  app.grows = (run) => run.growing && known(run.time) && Date.now() / 1000 - run.time < FRESH_S;

  function smoothed(values, width) {
    if (width < 2) return values;
    return values.map((value, at) => {
      if (!known(value)) return null;
      const near = values.slice(Math.max(0, at - width + 1), at + 1).filter(known);
      return near.reduce((sum, one) => sum + one, 0) / near.length;
    });
  }

  function chartOf([name, title, about, how], curves, state, width) {
    const series = [];
    for (const run of curves.runs) {
      const shown = app.runName(state, run.run);
      if (width > 1) series.push({ name: `${shown}, each point`, look: run.run, x: run.x, y: run[name], faint: true });
      series.push({ name: shown, look: run.run, x: run.x, y: smoothed(run[name], width) });
    }
    return {
      name, title, about, kind: "line", series, legend: state.runs.length > 1, x: { title: "step", format: INT },
      y: { title: "", format: how || {}, fromZero: how === PERCENT || how === INT },
    };
  }

  function statusChart(run, state) {
    const names = [...new Set(run.statuses.flatMap((counts) => Object.keys(counts)))].filter((name) => name !== "OK").sort();
    return names.length < 1 ? null : {
      name: `statuses-${run.run}`, title: state.runs.length > 1 ? `Other statuses, ${app.runName(state, run.run)}` : "Other statuses", kind: "line",
      about: "samples of a step by what became of them", x: { title: "step", format: INT }, y: { title: "", format: INT, fromZero: true },
      series: names.map((name, at) => ({ name, look: at, x: run.x, y: run.statuses.map((counts) => counts[name] || 0) })),
    };
  }

  /** Return a curve's first and last figure: means of its first and its last tenth. */
  function ends(values) {
    const all = (values || []).filter(known);
    if (!all.length) return null;
    const part = Math.max(1, Math.round(all.length / 10));
    const mean = (some) => some.reduce((sum, one) => sum + one, 0) / some.length;
    return { first: mean(all.slice(0, part)), last: mean(all.slice(-part)), moved: all.length > 1 };
  }

  function runTable(state, curves, picked, toggle) {
    const figure = (run, name, say) => {
      const curve = curves.runs.find((one) => one.run === run.id);
      const told = curve && (ends(curve[name]) || (curve.total.length ? ends([curve.total[0][name]]) : null));
      if (!told) return h("td", { class: "figure" }, format.NONE);
      return h("td", { class: "figure" }, told.moved ? h("span", { class: "was" }, `${say(told.first)} → `) : null, h("b", {}, say(told.last)));
    };
    const names = [["reward", "reward", format.number], ["acc", "Acc", format.percent], ["ncr", "NCR", format.percent], ["ncr_of_wrong", "NCR of wrong", format.percent], ["guarded", "guarded", format.percent], ["num_tokens", "tokens", format.int]];
    return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "runs" },
      h("table", { class: "runs" },
        h("caption", { class: "unseen" }, "Runs, each with the means of its first and of its last tenth of steps"),
        h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "run"), ["steps", "samples", ...names.map(([, title]) => title)].map((title) => h("th", { scope: "col", class: "figure" }, title)))),
        h("tbody", {}, state.runs.map((run) => h("tr", {},
          h("th", { scope: "row" },
            state.runs.length > 1
              ? h("button", { type: "button", class: "run-toggle", "aria-pressed": String(picked.includes(run.id)), title: "show or hide its curves", onclick: () => toggle(run.id) },
                h("i", { class: "dot", vars: { color: `var(--series-${run.id % 8})` } }), run.name)
              : run.name,
            app.grows(run) ? h("span", { class: "badge live" }, "growing") : null,
            run.read < 1 ? h("span", { class: "badge" }, `${format.percent(run.read)} read`) : null),
          h("td", { class: "figure" }, run.steps ? `${format.int(run.steps[0])}–${format.int(run.steps[1])}` : format.NONE),
          h("td", { class: "figure" }, h("a", { href: link(["samples"], { run: run.id }), "aria-label": `${format.int(run.samples)} samples of ${run.name}` }, format.int(run.samples))),
          names.map(([name, , say]) => figure(run, name, say)))))));
  }

  app.views.overview = async function overview({ chosen, state, get, go }) {
    const picked = chosen.run === undefined ? state.runs.map((run) => run.id) : [chosen.run].flat().map(Number);
    const width = Number(chosen.smooth) || 1;
    const where = { split: chosen.split, source: chosen.source, model: chosen.model };
    const kinds = app.LOOKS.filter(([, look]) => look.kind);
    const ask = () => Promise.all([
      get(`curves?${app.query(where)}`),
      ...kinds.map(([, look]) => get(`samples?${app.query({ run: chosen.run, ...where, ...look, limit: 1 })}`)),
    ]);
    let [all, ...counts] = await ask();
    const shown = () => ({ runs: all.runs.filter((run) => picked.includes(run.run)) });

    const toggle = (id) => {
      const next = picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id].sort((a, b) => a - b);
      go(["overview"], { ...chosen, run: next.length && next.length < state.runs.length ? next : null });
    };
    const toStep = (x) => {
      const [run] = shown().runs;
      if (!run || !run.x.length) return;
      const at = run.x.reduce((best, one, place) => (Math.abs(one - x) < Math.abs(run.x[best] - x) ? place : best), 0);
      const [first, last] = [run.first[at], run.x[at]];
      location.hash = link(["samples"], { run: chosen.run, ...where, step: first === last ? first : `${first}..${last}` });
    };
    const figures = CURVES.map((curve) => [curve, app.chart(chartOf(curve, shown(), state, width), { group: "curves", onpoint: toStep })]);
    const others = shown().runs.map((run) => statusChart(run, state)).filter(known).map((chart) => app.chart(chart));
    const pick = (label, name, options, more) => app.choice(label, name, options, chosen[name], { ...more, onchange: (value) => go(["overview"], { ...chosen, [name]: value }) });
    const looks = h("ul", { class: "looks" });
    const table = h("div");
    const leftOut = h("div", { class: "notes" });
    const fill = (now) => {
      looks.replaceChildren(...app.LOOKS.map(([words, look]) => {
        const at = kinds.findIndex(([, one]) => one === look);
        const total = at < 0 ? null : counts[at].total;
        return h("li", {}, h("a", { href: link(["samples"], { run: chosen.run, ...where, ...look }), class: total ? "has" : null }, words, total === null ? null : h("b", {}, ` ${format.int(total)}`)));
      }));
      // Whoever has the keyboard on a run keeps it there.
      if (!table.contains(document.activeElement)) table.replaceChildren(runTable(now, all, picked, toggle));
      leftOut.replaceChildren(...[...(now.left_out || []), ...now.runs.flatMap((run) => (run.left_out || []).map((sentence) => `${run.name}: ${sentence}`))].map((sentence) => h("p", {}, sentence)));
    };
    fill(state);
    const stepped = all.runs.some((run) => run.x.length);
    const coarse = all.runs.some((run) => run.x.some((x, at) => x !== run.first[at]));
    const without = all.runs.reduce((sum, run) => sum + run.without_step, 0);
    return {
      title: "Overview",
      element: [
        h("h1", {}, state.runs.length === 1 ? state.runs[0].name : "Runs"), table, leftOut,
        h("section", { "aria-labelledby": "look-at" }, h("h2", { id: "look-at" }, "Samples to look at"), looks),
        stepped ? null : h("p", { class: "about" }, all.runs.some((run) => run.without_step) ? "No sample here tells its step, so there are no curves. Its samples, their problems and the nodes of its dataset are a click away, above."
          : "Nothing is logged yet. This page shows it as it comes."),
        !stepped ? null : h("section", { "aria-labelledby": "by-step" },
          h("div", { class: "bar" }, h("h2", { id: "by-step" }, "By step"),
            h("div", { class: "filters" }, pick("source", "source", app.namesOf(state, "sources")), pick("split", "split", app.namesOf(state, "splits")),
              pick("model", "model", app.namesOf(state, "models")), pick("smooth", "smooth", SMOOTH, { all: "not at all" }))),
          h("p", { class: "about" }, "Click into a chart for the samples of that step.", coarse ? " Neighbouring steps are drawn as one point." : "",
            without ? ` ${format.count(without, "sample")} without a step ${without === 1 ? "is" : "are"} in no curve.` : ""),
          h("div", { class: "charts" }, figures.map(([, figure]) => figure), others)),
      ],
      async update(now) {
        [all, ...counts] = await ask();
        if (!stepped && all.runs.some((run) => run.x.length)) return app.show({ quiet: true });
        for (const [curve, figure] of figures) figure.update(chartOf(curve, shown(), now, width));
        return fill(now);
      },
    };
  };

  function scopesOf(section) {
    if (!section.scopes.length) return null;
    const holder = h("div");
    const show = (at) => {
      const scope = section.scopes[at];
      holder.replaceChildren(h("div", { class: "charts" }, scope.charts.map((chart) => app.chart(chart))),
        ...(scope.notes || []).map((note) => h("p", { class: "about" }, note)));
      if (holder.isConnected) app.disposeCharts();
    };
    show(0);
    return [
      app.choice("for", `scope-${section.name}`, section.scopes.map((scope, at) => [at, scope.title]), 0, { all: null, onchange: (value) => show(Number(value || 0)) }), holder,
    ];
  }

  app.views.report = async function report({ get }) {
    const told = await get("report");
    const jump = (section) => h("a", {
      href: "#/report", onclick(event) {
        event.preventDefault();
        const head = document.getElementById(`section-${section.name}`);
        head.scrollIntoView();
        head.focus();
      },
    }, section.title);
    return {
      title: told.title,
      element: [
        h("h1", {}, told.title), told.about ? h("p", { class: "about" }, told.about) : null,
        (told.warnings || []).map((warning) => h("p", { class: "warned" }, warning)),
        (told.boxes || []).map((box) => h("div", { class: `box ${box.look === "good" ? "good" : "bad"}` }, h("h2", {}, box.heading), (box.sentences || []).map((sentence) => h("p", {}, sentence)))),
        told.figures && told.figures.length ? h("ul", { class: "facts large" }, told.figures.map(([figure, what]) => h("li", {}, h("b", {}, figure), h("span", {}, what)))) : null,
        told.sections.length > 1 ? h("nav", { "aria-label": "Sections" }, h("ul", { class: "looks" }, told.sections.map((section) => h("li", {}, jump(section))))) : null,
        told.sections.map((section) => h("section", {},
          h("h2", { id: `section-${section.name}`, tabindex: "-1" }, section.title), (section.about || []).map((about) => h("p", { class: "about" }, about)),
          scopesOf(section), (section.tables || []).map((table) => app.table(table)), (section.notes || []).map((note) => h("p", { class: "about" }, note)))),
        told.facts && told.facts.length ? h("section", {}, h("h2", {}, "What the figures depend on"), h("dl", { class: "pairs" }, told.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))) : null,
        (told.footer || []).map((line) => h("p", { class: "about" }, line)),
      ],
    };
  };
})((window.consensuspr = window.consensuspr || {}));
