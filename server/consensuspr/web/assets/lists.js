/* Lists of samples: the address holds the filter, the rows come page by page. */
"use strict";

const PAGE = 50;
const REACHED = { none: "none", some: "under half", half: "half or more", all: "all" };
const KINDS = { suspicious: "suspicious", ...FLAGS };
const MEANINGS = {
  suspicious: "samples with one of the next three remarks",
  guarded: "responses that state more values than the guard allows",
  wrong_all: "the answer is wrong, but all nodes are reached",
  right_none: "the answer is right, but no node is reached",
  failed: "samples with another status than OK",
};

/** Ways to look at samples that people ask for first: words, and the filter. */
const LOOKS = [["newest", {}], ["best", { sort: "score" }], ["worst", { sort: "score", desc: 0 }],
  ["longest", { sort: "num_tokens" }],
  ...Object.entries(KINDS).map(([kind, words]) => [words, { kind }]),
];

/** Return a link to one of the ways to look; `count` stands behind its words. */
const lookLink = ([words, chosen], href, attributes, count) => h("li", 
  h("a", { href, title: MEANINGS[chosen.kind], ...attributes }, words, count));

const nodesOf = (row) => (row.num_nodes === null ? format.NONE
  : `${format.int(row.num_matched)}\u2009/\u2009${format.int(row.num_nodes)}`);
const shortDigest = (digest) => `${digest.slice(0, 15)}…`;
const runName = (state, id) =>
  (state.runs.find((run) => run.id === Number(id)) || { name: `run ${id}` }).name;
const runCrumb = (state, id) =>
  [runName(state, id), link(["overview"], { run: state.runs.length > 1 ? id : null })];
const stepCrumb = (run, step) => (known(step)
  ? [`step ${format.int(step)}`, source.kept ? null : link(["samples"], { run, step })] : null);
const sampleLink = (row) => link(["sample", row.run, row.key]);
const groupLink = ({ run, step, split, model, group, problem }) =>
  link(["group", run], { step, split, model, ...(group ? { group } : { problem }) });
const problemLink = (row) => link(["problem", row.run, row.problem]);
const titleOf = (row, at) => row.rollout_id || (at === undefined ? "sample" : `no. ${at + 1}`);

/** Return the names of something in all runs, as choices. */
const namesOf = (state, column) =>
  [...new Set(state.runs.flatMap((run) => run[column] || []))].filter((name) => name).sort()
    .map((name) => [name, name]);

// `of`: in which states a column is shown.  `optional`: shown if a row has a value there.
const SAMPLE_COLUMNS = [{ id: "problem", title: "problem", lead: true, cell: (row) => clip(row.problem) },
  { id: "run", title: "run", unsorted: true, of: (state) => state.runs.length > 1,
    cell: (row, at, state) => clip(runName(state, row.run)) },
  { id: "rollout_id", title: "rollout", optional: true, cell: (row) => clip(row.rollout_id) },
  { id: "step", title: "step", numeric: true, optional: true, cell: (row) => format.int(row.step) },
  { id: "model", title: "model", optional: true, cell: (row) => clip(row.model) },
  { id: "diagnosis", title: "diagnosis", optional: true, cell: (row) => clip(row.diagnosis) },
  { id: "acc", title: "verdict", cell: verdict },
  { id: "score", title: "reward", about: "score that the trainer uses, with penalties",
    numeric: true, cell: (row) => format.number(row.score) },
  { id: "ncr", title: "NCR", about: "share of the nodes that the response reaches, times the guard",
    numeric: true, cell: (row) => share(row.ncr) },
  { id: "num_matched", title: "nodes", numeric: true, cell: nodesOf },
  { id: "num_tokens", title: "tokens", numeric: true, optional: true, cell: (row) => format.int(row.num_tokens) },
  { id: "tpn", title: "TPN", about: "tokens per reached node", numeric: true,
    optional: true, cell: (row) => format.tpn(row.tpn) },
  { id: "answer", title: "answer", optional: true,
    cell: ({ answer }) => h("span.clip", { title: answer }, format.text(answer)) },
  { id: "flags", title: "remarks", unsorted: true, cell: remarks },
];
// In a list of one problem's samples, in place of problem and run.
const OWN_NAME = {
  title: "sample", unsorted: true, lead: true, cell: (row, at) => clip(titleOf(row, at)),
};

/** Return a table of samples.  `alike`: all are of one run and problem. */
function sampleTable(label, rows, state, { chosen = {}, onsort, alike } = {}) {
  const shown = SAMPLE_COLUMNS.filter((column) => !column.of || column.of(state));
  const columns = alike ? [OWN_NAME, ...shown.filter(({ id }) => !["problem", "run", "rollout_id"].includes(id))] : shown;
  return table({
    label, rows, look: "rows", onsort, sort: chosen.sort, up: String(chosen.desc) === "0",
    href: sampleLink,
    columns: columns.map((column) => ({ ...column, cell: (row, at) => column.cell(row, at, state) })),
    data: (row) => ({ "data-group": groupLink(row), "data-problem": problemLink(row) }),
    name: alike ? null : (row) => `sample of ${row.problem}, step ${format.int(row.step)}`,
  });
}

// A click beside the link of a row opens it too; text that is being selected does not.
document.addEventListener("click", (event) => {
  if (event.target.closest("a, button, input, summary, select") || String(getSelection())) return;
  const row = event.target.closest("tr[data-href]");
  if (row) location.hash = row.dataset.href;
});

/** Return the form of the filter; it changes the address. */
function filters(chosen, state, onchange) {
  const plain = (names) => names.map((name) => [name, name]);
  const statuses = [...new Set(state.runs.flatMap((run) => Object.keys(run.statuses)))].sort();
  const names = (label, column) => choice(label, label, namesOf(state, column), chosen[label]);
  const field = (label, name, attributes) => input(label, name, chosen[name], attributes);
  const drop = (name, words) => (chosen[name] === undefined ? null : h("button.fresh", {
    type: "button", title: chosen[name],
    onclick: () => onchange({ ...chosen, [name]: null, offset: null }),
  }, `${words} ✕`));
  const filterForm = form("Filters", field("text", "q", {
      id: "search", type: "search", wide: true, placeholder: "text in the response",
      "aria-keyshortcuts": "/",
    }),
    choice("run", "run", state.runs.map((run) => [run.id, run.name]), chosen.run),
    choice("verdict", "verdict", plain(["right", "wrong", "unknown"]), chosen.verdict),
    source.kept ? null : choice("nodes reached", "reached", Object.entries(REACHED), chosen.reached),
    source.kept ? null : choice("remark", "kind", Object.entries(KINDS), chosen.kind),
    names("source", "sources"), names("split", "splits"), names("model", "models"),
    names("diagnosis", "diagnoses"), choice("status", "status", plain(statuses), chosen.status),
    state.runs.some(({ steps }) => steps) && field("step", "step", { inputmode: "numeric", placeholder: "40 or 10..20", size: "8" }),
    field("problem", "problem", { placeholder: "id", size: "12" }),
    chosen.group ? field("group", "group", { size: "12" }) : null,
    drop("node", `reaching node ${Number(chosen.node) + 1}`),
    drop("dataset", `scored with ${shortDigest(String(chosen.dataset))}`),
    drop("formula", "of one reward formula"),
    field("NCR", "ncr", { placeholder: "0.5..1", size: "6" }),
    field("reward", "reward", { placeholder: "0..0.2", size: "6" }),
    field("tokens", "tokens", { placeholder: "1000..", size: "6" }),
    h("button", { type: "button", class: "quiet", onclick: () => onchange({}) }, "clear"));
  const read = () => {
    const next = { ...chosen, offset: null };
    for (const { name, value } of filterForm.elements) if (name) next[name] = value.trim() || null;
    if (next.q) next.sort = next.desc = null; // texts are searched from the newest on
    // Several of a kind come by link; the form knows one.
    for (const [name, value] of Object.entries(chosen)) {
      if (Array.isArray(value) && next[name] === null) next[name] = value;
    }
    onchange(next);
  };
  filterForm.addEventListener("submit", read);
  // A page that was kept has the samples of one choice at a time.
  filterForm.addEventListener("change", ({ target }) =>
    (source.kept ? onchange({ [target.name]: target.value || null }) : read()));
  return filterForm;
}

views.samples = async function samples({ chosen, state, get, go }) {
  const limit = Number(chosen.limit) || PAGE;
  const offset = Number(chosen.offset) || 0;
  const ask = (more) => get(`samples?${query({ ...chosen, limit, offset, ...more })}`);
  // The message about a bad filter stands beside its form.
  let page = await ask().catch((error) => {
    if (error.status !== 400) throw error;
    return { rows: [], total: 0, offset, search: null, fault: error.message };
  });
  const change = (next) => go(["samples"], next);
  const onsort = (id, up) => change({ ...chosen, sort: id, desc: up ? 0 : null, offset: null });
  const turn = (to) => change({ ...chosen, offset: to });
  const look = (each) => {
    const own = { kind: null, sort: null, desc: null, ...each[1] };
    const kept = source.kept ? {} : { ...chosen, offset: null, q: own.sort ? null : chosen.q };
    const same = Object.entries(own).every(([name, value]) =>
      String(chosen[name] === undefined ? null : chosen[name]) === String(value));
    return lookLink(each, link(["samples"], { ...kept, ...own }), { "aria-current": same ? "true" : null });
  };
  const fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => show() });
  const bar = h("div.bar");
  const list = h("div");
  // Texts are searched from the offset on, until a page of samples is found.
  const found = ({ rows, search }) => {
    const [searched, all] = [format.int(search.searched), format.int(search.candidates)];
    const missing = search.without_text ? `, of which ${format.int(search.without_text)} were not kept` : "";
    return [
      h("p", { id: "count", role: "status" }, `${format.count(rows.length, "match", "es")} in `,
        search.complete ? `all ${all} responses` : `${searched} of ${all} responses`, missing),
      h("span.pager", turnButton(offset ? 0 : null, "first page", "‹", "[", turn),
        turnButton(search.complete ? null : search.searched, "next page", "›", "]", turn)),
    ];
  };
  const fill = () => {
    const { search, rows, total, fault } = page;
    lastList = { hashes: rows.map(sampleLink), back: link(["samples"], chosen) };
    put(bar, search ? found(page) : pager("no sample matches", page, limit, turn), fresh,
      h("button.quiet.asks", {
        type: "button", disabled: !search && !total, onclick: () => download(chosen),
      }, "download as CSV"));
    put(list, fault ? h("p.warned", { role: "alert" }, fault)
      : rows.length ? sampleTable("Samples", rows, state, { chosen, onsort: search ? null : onsort })
      : h("p.empty", search && !search.complete ? "Searching…"
        : "No samples. Remove a filter above."));
  };
  fill();
  return {
    title: "Samples",
    element: [h("h1", "Samples"),
      h("ul.looks", { "aria-label": "Views of the samples" }, LOOKS.map(look)),
      filters(chosen, state, change), bar, list,
    ],
    // A request reads texts for a second.
    async goOn() {
      while (page.search && !page.search.complete && page.rows.length < limit) {
        const { searched, without_text: before } = page.search;
        const { rows, search } = await ask({ offset: searched, limit: limit - page.rows.length });
        search.without_text += before;
        page = { ...page, search, rows: [...page.rows, ...rows] };
        if (!list.contains(document.activeElement)) fill();
      }
    },
    async update() {
      if (chosen.q || page.fault) return;
      const { total } = await ask({ limit: 1, offset: 0 });
      fresh.hidden = total <= page.total;
      fresh.textContent = `${format.count(total - page.total, "new sample")}: show`;
    },
  };
};

async function download({ offset: _, limit: __, ...chosen }) {
  try {
    h("a", { href: await source.csv(chosen), download: "samples.csv" }).click();
    tell("Downloading the samples.");
  } catch (error) {
    window.alert(error.message);
  }
}
