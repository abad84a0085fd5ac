/* Runs over one another: curves by step, and where to look first; and a report's sections. */
(function (app) {
  "use strict";

  const { h, format, link, known } = app;
  const PERCENT = { scale: 100, decimals: 0, unit: "\u202f%" };
  const INT = { decimals: 0 };
  const ALL = "*"; // of splits: chosen, where one alone is shown otherwise

  // What is asked first of a run that trains, in the order in which one answers the other.  `beside`: a
  // curve that is drawn dashed into the same chart, and how it is named there.
  const CURVES = [
    { name: "reward", title: "Reward", about: "the score of the trainer, penalties included; dashed: the part from wrong answers", beside: ["reward_from_wrong", "from wrong answers"], fromZero: true },
    { name: "acc", title: "Acc", about: "share of final answers that are right", how: PERCENT },
    { name: "ncr", title: "NCR", about: "share of a problem's nodes that a text reaches; dashed: before the guard", how: PERCENT, beside: ["ncr_raw", "before the guard"] },
    { name: "ncr_of_wrong", title: "NCR of wrong answers", about: "grows where nodes are named and nothing is solved", how: PERCENT },
    { name: "guarded", title: "Lowered by the guard", about: "share of samples that state more than the guard allows", how: PERCENT },
    { name: "num_tokens", title: "Length", about: "tokens per sample", how: { decimals: null } },
    { name: "tpn", title: "TPN", about: "tokens per node that is reached" },
  ];
  const MOST_BESIDE = 4; // lines that have a dashed one beside them

  const FRESH_S = 300; // a run that got nothing for so long is not said to grow

  /** Return whether a run is being written to. */
  app.grows = (run) => run.growing && known(run.time) && Date.now() / 1000 - run.time < FRESH_S;

  /** Return one chart of the curves: `{name, look, curves}` for each line; without a name, it is the one. */
  function chartOf({ name, title, about, how, beside: besides, fromZero }, lines) {
    const series = [];
    const beside = lines.length <= MOST_BESIDE ? besides : null;
    for (const line of lines) {
      const x = line.curves.x;
      const called = line.name || title;
      series.push({ name: called, look: line.look, x, y: line.curves[name] });
      if (beside) series.push({ name: lines.length > 1 ? `${line.name}, ${beside[1]}` : beside[1], look: line.look, dashed: "dashed", x, y: line.curves[beside[0]] });
    }
    return {
      name, title, about, kind: "line", series, legend: lines.length > 1 || Boolean(beside), x: { title: "step", format: INT },
      y: { title: "", format: how || {}, fromZero: fromZero || how === PERCENT },
    };
  }

  /** Return the chart of a run's other statuses than OK; null if there are none. */
  function statusChart(run, state) {
    const names = [...new Set(run.statuses.flatMap((counts) => Object.keys(counts)))].filter((name) => name !== "OK").sort();
    return names.length < 1 ? null : {
      name: `statuses-${run.run}`, title: state.runs.length > 1 ? `Other statuses, ${app.runName(state, run.run)}` : "Other statuses", kind: "line",
      about: "samples of a step that did not end as OK; one without a reward never counts as 0", x: { title: "step", format: INT }, y: { title: "", format: INT, fromZero: true },
      series: names.map((name, at) => ({ name, look: at, x: run.x, y: run.statuses.map((counts) => counts[name] || 0) })),
    };
  }

  const tenth = (values) => Math.max(1, Math.round(values.length / 10));

  /** Return a curve's first and last figure, means of its first and its last tenth, and how far they
      may be apart by chance (two standard errors; null where a tenth is a single point). */
  function ends(values) {
    const all = (values || []).filter(known);
    if (!all.length) return null;
    const size = tenth(all);
    const parts = [all.slice(0, size), all.slice(-size)];
    const [first, last] = parts.map((part) => part.reduce((sum, one) => sum + one, 0) / size);
    const squares = (part, mean) => part.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (size - 1) / size;
    return { first, last, moved: all.length > 1, chance: size > 1 ? 2 * Math.sqrt(squares(parts[0], first) + squares(parts[1], last)) : null };
  }

  const CLEAR_RISE = 0.02;

  /** Return a warning if the reward of a run goes up mostly by wrong answers, else null. */
  function rise(run, curve, where, several) {
    const [reward, wrong, acc, ncr] = ["reward", "reward_from_wrong", "acc", "ncr_of_wrong"].map((name) => ends(curve[name]));
    if (![reward, wrong, acc, ncr].every(known) || !known(reward.chance)) return null;
    const [all, part] = [reward, wrong].map((one) => one.last - one.first);
    if (all < Math.max(CLEAR_RISE, reward.chance) || part < all / 2) return null;
    const size = tenth(curve.x);
    const [early, late] = [curve.x[size - 1], curve.first[curve.first.length - size]];
    return h("p", { class: "warned", "data-finding": "rise" }, several ? h("b", {}, `${run.name}: `) : null,
      `The reward went up by ${format.number(all)} while Acc went from ${format.percent(acc.first)} to ${format.percent(acc.last)}. `,
      `Wrong answers bring ${format.number(part)} of that: they reached ${format.percent(ncr.first)} of their nodes at first and reach ${format.percent(ncr.last)} now. `,
      app.source.kept ? null : [h("a", { href: link(["samples"], { run: several ? run.id : null, kind: "wrong_high", step: `${late}..`, ...where }) }, "See what they write"), ", or ",
      h("a", { href: link(["compare"], several ? { a: run.id, a_step: `..${early}`, b: run.id, b_step: `${late}..`, ...where } : where) }, "compare early and late steps"), "."]);
  }

  function runTable(state, curves, picked, toggle) {
    const figure = (run, name, say) => {
      const curve = curves.runs.find((one) => one.run === run.id);
      const means = curve && (ends(curve[name]) || (curve.total.length ? ends([curve.total[0][name]]) : null));
      if (!means) return h("td", { class: "figure" }, format.NONE);
      return h("td", { class: "figure" }, means.moved ? h("span", { class: "was" }, `${say(means.first)} → `) : null, h("b", {}, say(means.last)));
    };
    const names = [["reward", "reward", format.number], ["acc", "Acc", format.percent], ["ncr", "NCR", format.percent], ["ncr_of_wrong", "NCR of wrong", format.percent], ["guarded", "guarded", format.percent], ["num_tokens", "tokens", format.int]];
    const moved = curves.runs.some((curve) => curve.x.length > 1);
    return [app.scroll("runs", h("table", { class: "runs" },
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
          names.map(([name, , say]) => figure(run, name, say))))))),
      moved ? h("p", { class: "about" }, "From the first tenth of its steps to the last: the means of both.") : null];
  }

  app.views.overview = async function overview({ chosen, state, get, go }) {
    const picked = chosen.run === undefined ? state.runs.map((run) => run.id) : [chosen.run].flat().map(Number);
    const splits = app.namesOf(state, "splits");
    // What is looked at in between is not what is trained on: a curve through both would be of neither.
    const split = chosen.split || (splits.length > 1 && splits.some(([name]) => name === "train") ? "train" : ALL);
    const where = { split: split === ALL ? null : split, source: chosen.source, model: chosen.model };
    const looked = app.source.kept ? {} : { run: chosen.run, ...where, split: chosen.split === ALL ? null : chosen.split };
    const kinds = app.LOOKS.filter(([, look]) => look.kind);
    const ask = () => Promise.all([
      get(`curves?${app.query(where)}`),
      ...kinds.map(([, look]) => get(`samples?${app.query({ ...looked, ...look, limit: 1 })}`)),
    ]);
    let [all, ...counts] = await ask();
    const shown = () => all.runs.filter((run) => picked.includes(run.run));
    const lines = () => shown().map((curves) => ({ name: state.runs.length > 1 ? app.runName(state, curves.run) : null, look: curves.run, curves }));

    const toggle = (id) => {
      const next = picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id].sort((a, b) => a - b);
      go(["overview"], { ...chosen, run: next.length && next.length < state.runs.length ? next : null });
    };
    const toStep = app.source.kept ? null : (x) => {
      const [run] = shown();
      if (!run || !run.x.length) return;
      const at = run.x.reduce((best, one, place) => (Math.abs(one - x) < Math.abs(run.x[best] - x) ? place : best), 0);
      const [first, last] = [run.first[at], run.x[at]];
      location.hash = link(["samples"], { run: chosen.run, step: first === last ? first : `${first}..${last}`, ...where });
    };
    const charts = () => [...CURVES.map((curve) => chartOf(curve, lines())), ...shown().map((run) => statusChart(run, state)).filter(known)];
    const figures = charts().map((chart) => app.chart(chart, { group: "curves", onpoint: toStep }));
    const pick = (label, name, options, more) => app.choice(label, name, options, chosen[name], { ...more, onchange: (value) => go(["overview"], { ...chosen, [name]: value }) });
    const looks = h("ul", { class: "looks" });
    const table = h("div");
    const leftOut = h("div", { class: "notes" });
    const fill = (now) => {
      looks.replaceChildren(...app.LOOKS.map((look) => {
        const at = kinds.indexOf(look);
        const total = at < 0 ? null : counts[at].total;
        return app.look(look, link(["samples"], { ...looked, ...look[1] }), { class: total ? "has" : null }, total === null ? null : h("b", {}, ` ${format.int(total)}`));
      }));
      // Whoever has the keyboard on a run keeps it there.
      if (!table.contains(document.activeElement)) {
        table.replaceChildren();
        app.fill(table, [runTable(now, all, picked, toggle), shown().map((curve) => rise(now.runs.find((run) => run.id === curve.run), curve, where, now.runs.length > 1))]);
      }
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
          : "Nothing is logged yet. The page shows samples as they come."),
        !stepped ? null : h("section", { "aria-labelledby": "by-step" },
          h("div", { class: "bar" }, h("h2", { id: "by-step" }, "By step"),
            h("div", { class: "filters asks" }, pick("source", "source", app.namesOf(state, "sources")),
              app.choice("split", "split", splits.length > 1 ? [...splits, [ALL, "all"]] : [], split, { all: null, onchange: (value) => go(["overview"], { ...chosen, split: value }) }),
              pick("model", "model", app.namesOf(state, "models")))),
          h("p", { class: "about" }, app.source.kept ? "" : "Click into a chart for the samples of that step.", coarse ? " Neighbouring steps are drawn as one point." : "",
            without ? ` ${format.count(without, "sample")} without a step ${without === 1 ? "is" : "are"} in no curve.` : ""),
          h("div", { class: "charts" }, figures)),
      ],
      async update(now) {
        [all, ...counts] = await ask();
        const fresh = charts();
        // With a first step, a first failure or a split that was not there, the view is another one.
        const other = (!stepped && all.runs.some((run) => run.x.length)) || fresh.length !== figures.length || String(app.namesOf(now, "splits")) !== String(splits);
        if (other) return app.show({ quiet: true });
        figures.forEach((figure, at) => figure.update(fresh[at]));
        return fill(now);
      },
    };
  };

  app.views.report = async function report({ get }) {
    const report = await get("report");
    const jump = (section) => h("a", {
      href: "#/report", onclick(event) {
        event.preventDefault();
        const head = document.getElementById(`section-${section.name}`);
        head.scrollIntoView();
        head.focus();
      },
    }, section.title);
    return {
      title: report.title,
      element: [
        h("h1", {}, report.title),
        (report.warnings || []).map((warning) => h("p", { class: "warned" }, warning)),
        report.sections.length > 1 ? h("nav", { "aria-label": "Sections" }, h("ul", { class: "looks" }, report.sections.map((section) => h("li", {}, jump(section))))) : null,
        report.sections.map((section) => h("section", {},
          h("h2", { id: `section-${section.name}`, tabindex: "-1" }, section.title), (section.about || []).map((about) => h("p", { class: "about" }, about)),
          section.charts.length ? h("div", { class: "charts" }, section.charts.map((chart) => app.chart(chart))) : null, (section.tables || []).map((table) => app.table(table)), (section.notes || []).map((note) => h("p", { class: "about" }, note)))),
        report.facts && report.facts.length ? h("section", {}, h("h2", {}, "Inputs"), h("dl", { class: "pairs" }, report.facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))) : null,
        (report.footer || []).map((line) => h("p", { class: "about" }, line)),
      ],
    };
  };
})((window.consensuspr = window.consensuspr || {}));
