/* Runs over one another: curves by step, and where to look first; and a report's sections. */
"use strict";

const PERCENT = { scale: 100, decimals: 0, unit: "\u202f%" };
const INT = { decimals: 0 };
const ALL = "*"; // of splits: chosen, where the default is one alone
const MOST_BESIDE = 4; // lines that have a dashed one beside them
const FRESH_S = 300; // a run without steps that got nothing for so long does not count as growing
const CLEAR_RISE = 0.02;

// In the order in which one answers the other.  `beside`: a curve that is drawn dashed into the
// same chart, and its name there.
const CURVES = [{ name: "reward", title: "Reward", fromZero: true,
    about: "score that the trainer uses, with penalties; dashed: the part from wrong answers",
    beside: ["reward_from_wrong", "from wrong answers"] },
  { name: "acc", title: "Acc", about: "share of final answers that are right", style: PERCENT },
  { name: "ncr", title: "NCR", style: PERCENT,
    beside: ["ncr_raw", "before guard and missing answers"],
    about: "share of a problem's nodes that are reached; dashed: before guard and missing answers" },
  { name: "ncr_of_wrong", title: "NCR of wrong answers", style: PERCENT,
    beside: ["ncr_of_right", "right answers"],
    about: "rises if the policy names nodes without solving; dashed: of right answers" },
  { name: "guarded", title: "Lowered by the guard", style: PERCENT,
    about: "share of samples that state more values than the guard allows" },
  { name: "num_tokens", title: "Length", about: "tokens per sample" },
];

/** Return whether a run is being written to. */
function grows({ growing, time, began, steps }) {
  if (!growing || !known(time)) return false;
  const fresh = steps && steps[0] < steps[1] ? 3 * (time - began) / (steps[1] - steps[0]) : FRESH_S;
  return Date.now() / 1000 - time < Math.max(10, fresh); // three steps as long as its others
}

/** Return one chart of the curves: `{name, look, curves}` for each line. */
function chartOf({ name, title, about, style, beside, fromZero }, lines) {
  const dashed = lines.length <= MOST_BESIDE ? beside : null;
  const series = lines.flatMap(({ name: run, look, curves }) => {
    const line = (called, column, more) => ({ name: called, look, x: curves.x, y: curves[column], ...more });
    const own = line(run || title, name);
    if (!dashed) return [own];
    return [own, line(run ? `${run}, ${dashed[1]}` : dashed[1], dashed[0], { dashed: "dashed" })];
  });
  return {
    name, title, about, kind: "line", series,
    empty: lines.some(({ curves }) => curves[name].some(known)) ? "" : `rollouts have no ${name}`, x: { title: "step", format: INT },
    y: { title: "", format: style || {}, fromZero: fromZero || style === PERCENT },
  };
}

/** Return the chart of a run's other statuses than OK; null if there are none. */
function statusChart(run, state) {
  const names = [...new Set(run.statuses.flatMap((counts) => Object.keys(counts)))].sort()
    .filter((name) => name !== "OK");
  const title = state.runs.length > 1 ? `Other statuses, ${runName(state, run.run)}` : "Other statuses";
  return !names.length ? null : {
    name: `statuses-${run.run}`, title, kind: "line",
    about: "samples with another status than OK; a missing reward is not counted as 0",
    x: { title: "step", format: INT }, y: { title: "", format: INT, fromZero: true },
    series: names.map((name, at) => (
      { name, look: at, x: run.x, y: run.statuses.map((counts) => counts[name] || 0) })),
  };
}

/** Return a figure over the samples of the first and of the last tenth of the steps. */
function ends(curve, name) {
  const values = (curve.ends.length ? curve.ends : curve.total).map((part) => part[name]).filter(known);
  return values.length ? { first: values[0], last: values[values.length - 1], moved: values.length > 1 } : null;
}

/** Return how far both ends of a curve may be apart by chance: two standard errors. */
function chance(values) {
  const all = values.filter(known);
  const size = Math.round(all.length / 10);
  if (size < 2) return null;
  const square = (part) => {
    const mean = part.reduce((sum, value) => sum + value, 0) / size;
    return part.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  };
  return 2 * Math.sqrt((square(all.slice(0, size)) + square(all.slice(-size))) / (size - 1) / size);
}

/** Return a warning if the reward of a run goes up mostly by wrong answers, else null. */
function rise(run, curve, where, several) {
  const [reward, wrong, acc, ncr] =
    ["reward", "reward_from_wrong", "acc", "ncr_of_wrong"].map((name) => ends(curve, name));
  const noise = chance(curve.reward);
  if (![reward, wrong, acc, ncr, noise].every(known)) return null;
  const [all, part] = [reward, wrong].map(({ first, last }) => last - first);
  if (all < Math.max(CLEAR_RISE, noise) || part < all / 2) return null;
  const [early, late] = [curve.ends[0].x, curve.ends[1].first];
  const { number, percent } = format;
  const samples = { run: several ? run.id : null, verdict: "wrong", sort: "ncr", step: `${late}..`, ...where };
  const sides = several ? { a: run.id, a_step: `..${early}`, b: run.id, b_step: `${late}..`, ...where } : where;
  return h("p.warned", { "data-finding": "rise" }, several ? h("b", `${run.name}: `) : null,
    `The reward rose by ${number(all)}, but Acc went from ${percent(acc.first)} to ${percent(acc.last)}. `,
    `Wrong answers account for ${number(part)}: their NCR rose from ${percent(ncr.first)} to ${percent(ncr.last)}. `,
    source.kept ? null : [h("a", { href: link(["samples"], samples) }, "See what they write"), ", or ",
      h("a", { href: link(["compare"], sides) }, "compare early and late steps"), "."]);
}

const badges = (run) => [grows(run) ? h("span.badge.live", "growing") : null,
  run.read < 1 ? h("span.badge", `${format.percent(run.read)} read`) : null];

function runTable(state, curves, picked, toggle) {
  const several = state.runs.length > 1;
  const name = (run) => [
    h("button.run-toggle", {
      type: "button", "aria-pressed": String(picked.includes(run.id)),
      title: "show or hide this run", onclick: () => toggle(run.id),
    }, h("i.dot", { vars: { color: `var(--series-${run.id % 8})` } }), run.name),
    badges(run),
  ];
  const samples = (run) => h("a", {
    href: link(["samples"], { run: run.id }), "aria-label": `${format.int(run.samples)} samples of ${run.name}`,
  }, format.int(run.samples));
  const meansOf = (run, column) => ends(curves.runs.find(({ run: id }) => id === run.id), column);
  const figure = ([column, title, say]) => ({
    title, numeric: true, cell(run) {
      const means = meansOf(run, column);
      if (!means) return format.NONE;
      return [means.moved ? h("span.was", `${say(means.first)} → `) : null, h("b", say(means.last))];
    },
  });
  const { int, number, percent } = format;
  const steps = ({ steps: range }) => (range ? range.map(int).join("–") : format.NONE);
  return [table({
      label: "Runs, each with the means of its first and of its last tenth of steps", look: "runs",
      rows: state.runs, columns: [
        ...(several ? [{ title: "run", head: true, cell: name }] : []),
        { id: "steps", title: "steps", numeric: true, optional: true, cell: steps },
        { title: "samples", numeric: true, cell: samples },
        ...[["reward", "reward", number], ["acc", "Acc", percent], ["ncr", "NCR", percent],
          ["ncr_of_wrong", "NCR of wrong answers", percent], ["guarded", "guarded", percent],
          ["num_tokens", "tokens", int]]
          .filter(([column]) => state.runs.some((run) => meansOf(run, column))).map(figure),
      ],
    }),
    curves.runs.some(({ x }) => x.length > 1)
      ? hint("Each figure: mean over the samples of the first tenth of the steps → of the last tenth.") : null,
  ];
}

const TENTHS = Array.from({ length: 11 }, (_, at) => String(at / 10));
const ANSWERS = ["right", "wrong"];

/** Return samples without steps added up: charts, and tables by model, by source and by answer. */
function groupsOf({ groups, kinds, rewards }, state, where) {
  const several = state.runs.length > 1;
  const { int, number } = format;
  const column = (id, title, say, more) =>
    ({ id, title, numeric: true, optional: true, cell: (row) => say(row[id]), ...more });
  const samples = (chosen) => column("samples", "samples", int, {
    cell: (row) => (source.kept || !chosen(row) ? int(row.samples)
      : h("a", { href: link(["samples"], { ...where, ...chosen(row) }) }, int(row.samples))),
  });
  // One model or one source is what the figures above are of.
  const tables = ["model", "source"].map((by) => [by, groups.filter((row) => row.by === by)])
    .filter(([, rows]) => new Set(rows.map(({ name }) => name)).size > 1)
    .map(([by, rows]) => table({
      label: `By ${by}`, caption: true, rows, columns: [
        ...(several ? [{ title: "run", cell: (row) => clip(runName(state, row.run)) }] : []),
        { title: by, cell: (row) => clip(row.name) },
        samples((row) => row.name && { run: several ? row.run : null, [by]: row.name }),
        column("problems", "problems", int), column("acc", "Acc", share), column("ncr", "NCR", share),
        column("ncr_right", "NCR of right answers", share), column("ncr_wrong", "NCR of wrong answers", share),
        column("reward", "reward", number), column("tokens", "tokens", int),
      ],
    }));
  const total = kinds.reduce((sum, row) => sum + row.samples, 0);
  const find = (answer, reached) => kinds.find((row) => row.verdict === answer && row.reached === reached);
  const byKind = table({
    label: "By answer and nodes reached", caption: true,
    rows: [...ANSWERS, "unknown"].flatMap((answer) =>
      [...Object.keys(REACHED).reverse(), null].map((reached) => find(answer, reached))).filter(known),
    columns: [{ title: "answer", cell: (row) => verdict({ acc: { right: 1, wrong: 0 }[row.verdict] }) },
      { title: "nodes reached", cell: ({ reached }) => (reached ? REACHED[reached] : "the problem has none") },
      samples(({ verdict: answer, reached }) => reached && { verdict: answer, reached }),
      { title: "of all", numeric: true, cell: (row) => share(row.samples / total) },
      column("reward", "reward", number), column("ncr", "NCR", format.percent), column("tokens", "tokens", int),
    ],
  });
  const bars = (name, title, about, bins, x, lines) => ({
    kind: "bars", name, title, about, bins, x: { title: x, format: {} }, y: { title: "", format: INT, fromZero: true },
    series: lines.map((line) => ({ x: [], ...line })),
  });
  const specs = [bars("kinds", "Nodes reached by right and by wrong answers",
      "samples by answer", Object.values(REACHED), "share of the problem's nodes", ANSWERS.map((answer) => ({
        name: answer, look: answer, y: Object.keys(REACHED).map((reached) => (find(answer, reached) || { samples: 0 }).samples),
        hrefs: source.kept ? null
          : Object.keys(REACHED).map((reached) => link(["samples"], { ...where, verdict: answer, reached })),
      }))),
    rewards.length && bars("rewards", "Rewards", "samples by answer; penalties included", TENTHS, "reward, rounded down to a tenth (below 0: 0)", ANSWERS.map((answer) => ({
      name: answer, look: answer, y: TENTHS.map((_, at) => rewards
        .filter((row) => row.verdict === answer && Math.max(0, Math.min(10, row.tenth)) === at)
        .reduce((sum, row) => sum + row.samples, 0)),
    }))),
  ];
  return [h("div.charts", specs.filter((spec) => spec).map((spec) => chart(spec))), ...tables, byKind].map((part) => h("section", part));
}

/** Return a warning if a run was scored with several reward formulas, else null. */
const mixed = (run, several) => (run.formulas.length < 2 ? null : h("p.warned", { "data-finding": "mixed" },
  several ? h("b", `${run.name}: `) : null, `This run has ${run.formulas.length} reward formulas. `,
  "Rewards of different formulas cannot be compared. ", source.kept ? null : ["Choose one at ", h("b", "formula"), "."]));

views.overview = async function overview({ chosen, state, get, go }) {
  const picked = chosen.run === undefined ? state.runs.map(({ id }) => id) : [chosen.run].flat().map(Number);
  const splits = namesOf(state, "splits");
  // Test samples are not trained on: a curve through both would be of neither.
  const train = splits.length > 1 && splits.some(([name]) => name === "train");
  const split = chosen.split || (train ? "train" : ALL);
  // So are rewards of two formulas.
  const formulas = state.runs.some((run) => run.formulas.length > 1) ? state.runs.flatMap((run) => run.formulas) : [];
  const formula = chosen.formula || (formulas.length && state.runs.length === 1 && !source.kept ? formulas[0][0] : ALL);
  const where = {
    split: split === ALL ? null : split, source: chosen.source, model: chosen.model,
    formula: formula === ALL ? null : formula,
  };
  const looked = source.kept ? {}
    : { run: chosen.run, ...where, split: chosen.split === ALL ? null : chosen.split };
  const kinds = LOOKS.filter(([, look]) => look.kind);
  const ask = () => Promise.all([get(`curves?${query(where)}`),
    state.runs.some(({ steps }) => steps) ? null : get(`groups?${query({ ...where, run: looked.run })}`),
    ...kinds.map(([, look]) => get(`samples?${query({ ...looked, ...look, limit: 1 })}`)),
  ]);
  let [all, groups, ...counts] = await ask();
  const shown = () => all.runs.filter(({ run }) => picked.includes(run));
  const change = (next) => go(["overview"], { ...chosen, ...next });
  const toggle = (id) => {
    const next = picked.includes(id) ? picked.filter((one) => one !== id) : [...picked, id].sort((a, b) => a - b);
    change({ run: next.length && next.length < state.runs.length ? next : null });
  };
  const onpoint = source.kept ? null : (x) => {
    const [run] = shown();
    if (!run || !run.x.length) return;
    const far = run.x.map((value) => Math.abs(value - x));
    const at = far.indexOf(Math.min(...far));
    const [first, last] = [run.first[at], run.x[at]];
    const step = first === last ? first : `${first}..${last}`;
    location.hash = link(["samples"], { run: chosen.run, step, ...where });
  };
  const charts = () => {
    const lines = shown().map((curves) => ({
      name: state.runs.length > 1 ? runName(state, curves.run) : null, look: curves.run, curves,
    }));
    return [...CURVES.map((curve) => chartOf(curve, lines)),
      ...shown().map((run) => statusChart(run, state)).filter(known)];
  };
  const stepped = all.runs.some(({ x }) => x.length);
  const figures = (stepped ? charts() : []).map((spec) => chart(spec, { group: "curves", onpoint }));
  const pick = (name, options, more) => choice(name, name, options, chosen[name],
    { ...more, onchange: (value) => change({ [name]: value }) });
  const looks = h("ul.looks");
  const table = h("div");
  const leftOut = h("div.notes");
  const grouped = h("div");
  const fill = (now) => {
    put(looks, LOOKS.map((look) => {
      const at = kinds.indexOf(look);
      const total = at < 0 ? null : counts[at].total;
      return lookLink(look, link(["samples"], { ...looked, ...look[1] }), { class: total ? "has" : null },
        total === null ? null : h("b", ` ${format.int(total)}`));
    }));
    // Whoever has the keyboard on a run keeps it there.
    if (!table.contains(document.activeElement)) {
      const runOf = (curve) => now.runs.find(({ id }) => id === curve.run);
      put(table, now.runs.map((run) => mixed(run, now.runs.length > 1)), runTable(now, all, picked, toggle),
        shown().map((curve) => rise(runOf(curve), curve, where, now.runs.length > 1)));
    }
    if (groups && !grouped.contains(document.activeElement)) put(grouped, groupsOf(groups, now, where));
    const sentences = now.runs.flatMap((run) => run.left_out.map((text) => `${run.name}: ${text}`));
    put(leftOut, [...now.left_out, ...sentences].map((sentence) => h("p", sentence)));
  };
  fill(state);
  const coarse = all.runs.some(({ x, first }) => x.some((last, at) => last !== first[at]));
  const without = all.runs.reduce((sum, run) => sum + run.without_step, 0);
  const only = (name, options, value) => choice(name, name, options.length > 1 ? [...options, [ALL, "all"]] : [], value,
    { all: null, onchange: (next) => change({ [name]: next }) });
  const choices = h("div.filters.asks", only("formula", formulas, formula), pick("source", namesOf(state, "sources")),
    only("split", splits, split), pick("model", namesOf(state, "models")));
  const curves = () => h("section", { "aria-labelledby": "by-step" },
    h("div.bar", h("h2", { id: "by-step" }, "By step"), choices),
    hint(source.kept ? "" : "Click a step in a chart to see its samples.",
      coarse ? " Neighbouring steps are drawn as one point." : "",
      without ? ` ${format.count(without, "sample")} without a step, in no curve.` : ""),
    h("div.charts.curves", figures));
  return {
    title: "Overview",
    element: [h("h1", state.runs.length === 1 ? state.runs[0].name : "Runs"),
      table, leftOut,
      h("section", { "aria-labelledby": "look-at" }, h("h2", { id: "look-at" }, "Samples to look at"), looks),
      stepped ? curves() : without ? [choices, grouped] : hint("No samples yet. The page shows them as they come."),
    ],
    async update(now) {
      [all, groups, ...counts] = await ask();
      const fresh = all.runs.some(({ x }) => x.length) ? charts() : [];
      // With a first step, a first failure or a new split, the view is another one.
      if (fresh.length !== figures.length || String(namesOf(now, "splits")) !== String(splits)) return show({ quiet: true });
      figures.forEach((figure, at) => figure.update(fresh[at]));
      fill(now);
      return disposeCharts();
    },
  };
};

views.report = async function report({ get }) {
  const { title, warnings, sections, facts, footer } = await get("report");
  const jump = ({ name, title: words }) => h("li", h("a", {
    href: "#/report", onclick(event) {
      event.preventDefault();
      const head = document.getElementById(`section-${name}`);
      head.scrollIntoView();
      head.focus();
    },
  }, words));
  const section = ({ name, title: words, about, charts, tables, notes }) => h("section", 
    h("h2", { id: `section-${name}`, tabindex: "-1" }, words), about.map((text) => hint(text)),
    charts.length ? h("div.charts", charts.map((spec) => chart(spec))) : null,
    tables.map(dataTable), notes.map((text) => hint(text)));
  return {
    title,
    element: [h("h1", title), warnings.map((text) => warning(text)),
      h("nav", { "aria-label": "Sections" }, h("ul.looks", sections.map(jump))),
      sections.map(section),
      facts.length ? h("section", h("h2", "Inputs"), pairs(facts, "pairs")) : null,
      footer.map((text) => hint(text)),
    ],
  };
};
