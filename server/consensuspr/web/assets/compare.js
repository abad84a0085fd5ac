/* Two sides beside each other: runs, models, or early and late steps of one run.  The changes over
       all problems, and of one problem the samples of both. */
"use strict";

const MOST = 500; // samples of a problem that a side is judged by, the newest ones
const SIDES = ["a", "b"];
const SIDE_KEYS = ["a", "a_model", "a_step", "b", "b_model", "b_step"];
const COMMON = ["source", "split"];

const only = (names, from) =>
  Object.fromEntries(names.filter((name) => known(from[name])).map((name) => [name, from[name]]));
const modelsOf = (run) => run.models.filter((name) => name);
const bothSides = (make) => Object.fromEntries(SIDES.map((side) => [side, make(side)]));

/** Return whether there are two sides of anything. */
const comparable = (state) => state.runs.length > 1
  || state.runs.some((run) => modelsOf(run).length > 1 || (run.steps && run.steps[0] < run.steps[1]));

/** Return the default sides: two runs, two models, or both ends of a run. */
function standard(state) {
  const [first, second] = state.runs;
  if (second) return { a: first.id, b: second.id };
  const both = { a: first.id, b: first.id };
  const models = modelsOf(first);
  if (models.length > 1) return { ...both, a_model: models[0], b_model: models[1] };
  if (!first.steps || first.steps[0] === first.steps[1]) return both;
  const [low, high] = first.steps;
  const part = Math.floor((high - low) / 3);
  return { ...both, a_step: `${low}..${low + part}`, b_step: `${high - part}..${high}` };
}

function sidesOf(chosen, state) {
  const given = only(SIDE_KEYS, chosen);
  const sides = Object.keys(given).length ? { a: state.runs[0].id, b: state.runs[0].id, ...given } : standard(state);
  return { ...sides, ...only(COMMON, chosen) };
}

/** Return the filter of a side's samples. */
const samplesOf = (where, side) =>
  ({ run: where[side], model: where[`${side}_model`], step: where[`${side}_step`], ...only(COMMON, where) });

function nameOf(where, side, state) {
  const { run, model, step } = samplesOf(where, side);
  const differ = String(where.a) !== String(where.b) || !SIDE_KEYS.some((key) => key.includes("_") && where[key]);
  return [differ ? runName(state, run) : null, model, step ? `step ${String(step).replace("..", "–")}` : null]
    .filter((part) => part).join(", ") || "all";
}

const tag = (side) => h("b", { class: `side side-${side}` }, side.toUpperCase());

function sideForm(where, side, state, change) {
  const put = (name) => (value) => change({ [name]: value });
  const [model, step] = [`${side}_model`, `${side}_step`];
  return h("fieldset.filters.side-form", h("legend", tag(side)),
    choice("run", side, state.runs.map(({ id, name }) => [id, name]), where[side], { all: null, onchange: put(side) }),
    choice("model", model, namesOf(state, "models"), where[model], { onchange: put(model) }),
    state.runs.some((run) => run.steps) ? input("step", step, where[step],
      { placeholder: "all, 40 or 10..20", size: "12", onchange: put(step) }) : null);
}

const FIGURES = [["samples", "samples", format.int], ["problems", "problems", format.int],
  ["acc", "Acc", format.percent], ["ncr", "NCR", format.percent], ["ncr_wrong", "NCR of wrong answers", format.percent],
  ["reward", "reward", format.number], ["guarded", "guarded", format.percent], ["tokens", "tokens", format.int]];

const sideTable = (where, { sides }, state) => table({
  label: "Both sides over all of their samples", look: "runs", rows: SIDES,
  columns: [{ title: "side", head: true, cell: (side) =>
      [tag(side), " ", h("a", { href: link(["samples"], samplesOf(where, side)) }, nameOf(where, side, state))] },
    ...FIGURES.filter(([name]) => SIDES.some((side) => known(sides[side][name])))
      .map(([name, title, say]) => ({ title, numeric: true, cell: (side) => say(sides[side][name]) })),
  ],
});

/** Return a mean difference with its 95 % interval; coloured if that leaves out 0. */
function interval({ mean, error, count }, points) {
  if (!known(mean)) return format.NONE;
  if (!known(error) || count < 2) return signed(mean, { points, plain: true });
  const ends = [mean - 1.96 * error, mean + 1.96 * error];
  const [low, high] = ends.map((end) => signed(end, { points, plain: true }));
  return [signed(mean, { points, plain: ends[0] <= 0 && ends[1] >= 0 }),
    h("span.note", " (", low, " to ", high, ")")];
}

const CHANGE_LOOKS = [["all", null], ["better", "better", { sort: "acc", desc: null }],
  ["worse", "worse", { sort: "acc", desc: 0 }], ["the same", "same"], ["only in A", "only_a"], ["only in B", "only_b"]];
const points = (value) => signed(value, { points: true });
const COMPARE_COLUMNS = [["a_acc", "A", format.percent, "Acc"], ["b_acc", "B", format.percent, "Acc"], ["acc", "B − A", points, "Acc"],
  ["a_ncr", "A", format.percent, "NCR"], ["b_ncr", "B", format.percent, "NCR"], ["ncr", "B − A", points, "NCR"],
  ["a_reward", "A", format.number, "reward"], ["b_reward", "B", format.number, "reward"],
  ["reward", "B − A", (value) => signed(value), "reward"],
  ["a_samples", "A", format.int, "samples"], ["b_samples", "B", format.int, "samples"]]
  .map(([id, title, say, over]) => ({ id, title, over, numeric: true, cell: (row) => say(row[id]) }));

/** Return the link to a pair; the same sides make the same link. */
const pairLink = ({ problem }, where) => link(["pair"], { problem, ...only([...SIDE_KEYS, ...COMMON], where) });

views.compare = async function compare({ chosen, state, get, go }) {
  if (!comparable(state)) {
    const alone = "There is only one run, without steps and of one model. Add another: consensuspr watch RUN RUN";
    return { title: "Compare", element: [h("h1", "Compare"), h("p.empty", alone)] };
  }
  const where = sidesOf(chosen, state);
  const limit = Number(chosen.limit) || PAGE;
  const offset = Number(chosen.offset) || 0;
  const asked = { ...only(["change", "sort", "desc", "q"], chosen), ...where, limit, offset };
  const page = await get(`compare?${query(asked)}`);
  const change = (next) => go(["compare"], { ...chosen, ...where, offset: null, ...next });
  const pick = (name) => choice(name, name, namesOf(state, `${name}s`), chosen[name],
    { onchange: (value) => change({ [name]: value }) });
  const { counts, differences, sides } = page;
  const both = counts.better + counts.worse + counts.same;
  const rewarded = known(sides.a.reward) || known(sides.b.reward);
  const href = (row) => pairLink(row, where);
  lastList = { hashes: page.rows.map(href), back: link(["compare"], { ...chosen, ...where }) };
  const look = ([words, name, order]) => h("li", h("a", {
    href: link(["compare"], { ...chosen, ...where, offset: null, change: name,
      ...(order || (source.kept ? { sort: null, desc: null } : {})) }),
    "aria-current": (chosen.change || null) === name ? "true" : null,
  }, words, name ? h("b", ` ${format.int(counts[name])}`) : null));
  const means = () => facts([["Acc, each problem once", interval(differences.acc, true)],
    ["NCR, each problem once", interval(differences.ncr, true)],
    ["reward, each problem once", rewarded ? interval(differences.reward, false) : null]]);
  return {
    title: "Compare",
    element: [h("h1", "Compare"),
      h("form.sides", { onsubmit: (event) => event.preventDefault(), "aria-label": "Sides" },
        SIDES.map((side) => sideForm(where, side, state, change)),
        h("fieldset.filters.side-form.asks", h("legend", "both"),
          pick("source"), pick("split"))),
      sideTable(where, page, state),
      both && String(sides.a.datasets) !== String(sides.b.datasets)
        ? warning("Different datasets scored the two sides. Their NCR and rewards cannot be compared.") : null,
      h("section", { "aria-labelledby": "changed" }, h("h2", { id: "changed" }, "B minus A"),
        hint(both ? `Means over the ${format.count(both, "problem")} of both sides. The table above counts each sample once. `
          + "Acc and NCR in percentage points, with their 95 % confidence interval: if it contains 0, the difference may be chance."
          : "No problem is on both sides."),
        both ? means() : null),
      h("section", { "aria-labelledby": "which" }, h("h2", { id: "which" }, "Which problems"),
        h("ul.looks", CHANGE_LOOKS.map(look)),
        form("Which problems", problemSearch(chosen.q, (q) => change({ q }))),
        h("div.bar", pager("no problem matches", page, limit, (to) => change({ offset: to }))),
        page.rows.length ? table({
          label: "problems of both sides", look: "rows", rows: page.rows, sort: chosen.sort || "acc",
          up: String(chosen.desc) === "0", href,
          onsort: (id, rising) => change({ sort: id, desc: rising ? 0 : null }),
          columns: [{ id: "problem", title: "problem", lead: true, cell: (row) => clip(row.problem) },
            ...COMPARE_COLUMNS.filter(({ over }) => over !== "reward" || rewarded)],
        }) : null),
    ],
  };
};

const mean = (rows, of) => {
  const values = rows.map(of).filter(known);
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
};
const reached = (rows, number) => mean(rows, ({ channels }) =>
  (channels ? Number(number < channels.length && channels[number] !== "-") : null));

/** Return the first samples that show the change: one side wrong, the other right. */
function telling(rows) {
  const [a, b] = SIDES.map((side) => mean(rows[side], (row) => row.acc));
  const pick = (side, acc) => rows[side].find((row) => row.acc === acc) || rows[side][0];
  if (!known(a) || !known(b) || a === b) return { a: rows.a[0], b: rows.b[0] };
  return b > a ? { a: pick("a", 0), b: pick("b", 1) } : { a: pick("a", 1), b: pick("b", 0) };
}

views.pair = async function pair({ chosen, state, get, go }) {
  const where = sidesOf(chosen, state);
  const id = chosen.problem;
  if (!id) throw new SourceError("Name the problem: ?problem=ID", 404);
  const missing = (error) => {
    if (error.status !== 404) throw error;
    return null;
  };
  const [lists, problems] = await Promise.all([
    Promise.all(SIDES.map((side) => get(`samples?${query({ ...samplesOf(where, side), problem: id, limit: MOST })}`))),
    Promise.all(SIDES.map((side) =>
      get(`problem/${encodeURIComponent(where[side])}/${encodeURIComponent(id)}`).catch(missing))),
  ]);
  const rows = { a: lists[0].rows, b: lists[1].rows };
  if (!rows.a.length && !rows.b.length) {
    throw new SourceError(`Neither side has a sample of problem ${JSON.stringify(id)}.`, 404);
  }
  const [first, names] = [telling(rows), { a: "left", b: "right" }];
  const picked = bothSides((side) =>
    rows[side].find((row) => row.key === chosen[names[side]]) || first[side] || null);
  const [a, b] = await Promise.all(SIDES.map((side) => picked[side] && get(`sample/${picked[side].run}/${picked[side].key}`)));
  const wholes = { a, b };
  const described = problems.filter(known);
  const saying = ({ nodes }) => JSON.stringify(nodes.map((node) => [node.id, node.label, node.expressions]));
  const same = described.length < 2 || saying(described[0]) === saying(described[1]);
  const nodes = same && described.length ? described[0].nodes : [];
  const rate = (side) => (node) => reached(rows[side], node.number);
  const difference = (node) => {
    const [before, after] = SIDES.map((side) => rate(side)(node));
    return points(known(before) && known(after) ? after - before : null);
  };
  const column = (side) => {
    const row = picked[side];
    const sayRow = (one, at) => [one.acc === 1 ? "✓" : one.acc === 0 ? "✗" : "?",
      known(one.step) ? `step ${one.step},` : "", `reward ${format.number(one.score)},`, titleOf(one, at)].join(" ");
    const means = `Acc ${format.percent(mean(rows[side], (one) => one.acc))}, NCR ${format.percent(mean(rows[side], (one) => one.ncr))}`;
    const limit = lists[SIDES.indexOf(side)].total > MOST ? `; of the newest ${MOST}` : "";
    return h("article.card.pair-side", { "aria-label": `side ${side.toUpperCase()}` },
      h("h3", tag(side), ` ${nameOf(where, side, state)}`),
      hint(`${format.count(rows[side].length, "sample")}: ${means}, reward ${format.number(mean(rows[side], (one) => one.score))}${limit}`),
      row ? [
        choice("sample", names[side], rows[side].map((one, at) => [one.key, sayRow(one, at)]), row.key,
          { all: null, always: true, onchange: (key) => go(["pair"], { ...chosen, ...where, [names[side]]: key }) }),
        h("p", verdict(row), ` reward ${format.number(row.score)}, NCR ${format.percent(row.ncr)}, nodes ${nodesOf(row)} `,
          h("a", { href: sampleLink(row) }, "why"), " · ", h("a", { href: groupLink(row) }, "its group")),
      ] : null,
      h("div.pair-text", row ? textOf(wholes[side]) : h("p.empty", "This side has no sample.")));
  };
  const { previous, next, back, element: pager } = inList(pairLink({ problem: id }, where), "pair");
  return {
    title: `${id}, side by side`, previous, next,
    element: [h("div.bar", crumbs(["compare", back || link(["compare"], where)], [id]), pager),
      h("h1", id), problemBox((described[0] || a || b).problem),
      same ? null : warning("The two sides were scored with different nodes. Their NCR cannot be compared."),
      nodes.length ? h("section", h("h2", "Nodes"), hint("Share of each side's samples that reach each node."), table({
        label: "Nodes by side", look: "node-table", rows: nodes, columns: [...nodeColumns,
          ...SIDES.map((side) => ({ title: side.toUpperCase(), numeric: true, width: "at-rate", cell: (node) => share(rate(side)(node)) })),
          { title: "B − A", numeric: true, width: "at-rate", cell: difference }],
      })) : null,
      h("section", h("div.bar", h("h2", "Side by side"), modeSwitch()),
        h("div.beside.pair", SIDES.map(column))),
    ],
  };
};
