/* Problems and their nodes: of a run, over its steps, and of a dataset, where nodes are reviewed. */
"use strict";

const PROBLEMS = 20; // of a dataset on one page
const EXAMPLES = 2; // of right samples that reach a node, and of wrong ones
const AROUND = 240; // characters on each side of a hit, where no line ends sooner

// Columns with one heading belong together: "change" is that of Acc, from the first to the last step.
const say = { ...format, share: (value) => share(value), change: (value) => signed(value, { points: true }) };
const PROBLEM_COLUMNS = [
  ["source", "source", "text"], ["samples", "samples", "int"], ["reward", "reward", "number"],
  ["acc", "all", "share", "Acc"], ["change", "change", "change", "Acc"],
  ["ncr", "all", "share", "NCR"], ["ncr_right", "of right answers", "percent", "NCR"],
  ["ncr_wrong", "of wrong answers", "percent", "NCR"],
].map(([id, title, kind, over]) =>
  ({ id, title, over, optional: true, numeric: kind !== "text", cell: (row) => say[kind](row[id]) }));

views.problems = async function problems({ chosen, state, get, go }) {
  const limit = Number(chosen.limit) || PAGE;
  const offset = Number(chosen.offset) || 0;
  const run = chosen.run === undefined ? state.runs[0].id : [chosen.run].flat()[0];
  const page = await get(`problems?${query({ ...chosen, run, limit, offset })}`);
  const change = (next) => go(["problems"], { ...chosen, offset: null, ...next });
  const pick = (name, options, more) => choice(name, name, options, name === "run" ? run : chosen[name],
    { ...more, onchange: (value) => change({ [name]: value }) });
  const names = (name) => (source.kept ? null : pick(name, namesOf(state, `${name}s`)));
  const href = ({ problem }) => problemLink({ run, problem });
  return {
    title: "Problems",
    element: [h("h1", "Problems"),
      form("Which problems", problemSearch(chosen.q, (q) => change({ q })),
        pick("run", state.runs.map(({ id, name }) => [id, name]), { all: null }),
        names("source"), names("split"), names("model")),
      h("div.bar", pager("no problem matches", page, limit, (to) => change({ offset: to }))),
      table({
        label: "problems", look: "rows", rows: page.rows, sort: chosen.sort || "samples",
        up: String(chosen.desc) === "0", onsort: (id, up) => change({ sort: id, desc: up ? 0 : null }),
        href, data: (row) => ({ "data-problem": href(row) }),
        columns: [{ id: "problem", title: "problem", lead: true, cell: (row) =>
          [clip(row.problem), row.text ? h("span.excerpt", prose(row.text, true)) : null] }, ...PROBLEM_COLUMNS],
      }),
    ],
  };
};

const rateOf = (count, of) => (of ? count / of : null);

/** Return a remark about a node that its rates suggest, or null. */
function judgement(node, rights, wrongs) {
  const [right, wrong] = [rateOf(node.by_right, rights), rateOf(node.by_wrong, wrongs)];
  if (right === null || wrong === null || rights + wrongs < 8) return null;
  if (right < 0.02 && wrong < 0.02) return "rarely reached";
  return wrong >= right ? "wrong samples reach it as often" : null;
}

/** Return the text around the hit of a node. */
function excerpt(sample, number) {
  if (sample.text === null) return hint(sample.text_why);
  const span = [null, null];
  let text = "";
  for (const piece of sample.text) {
    const before = text.length;
    text += piece.skipped === undefined ? piece.text : "\n";
    if (!(piece.nodes || []).includes(number)) continue;
    if (span[0] === null) span[0] = before;
    span[1] = text.length;
  }
  const [start, end] = span;
  if (start === null) return hint(sample.explained_why || "Its place in the text is unknown.");
  // The line before the hit's own, to the end of its line.
  const line = (from) => text.lastIndexOf("\n", from - 1) + 1;
  const first = Math.max(start - AROUND, line(Math.max(0, line(start) - 1)));
  const low = first + text.slice(first, start).search(/\S|$/);
  const below = text.indexOf("\n", end);
  const high = Math.min(end + AROUND, below < 0 ? text.length : below);
  const part = (from, to, nodes) => ({ text: text.slice(from, to), nodes, ends: nodes });
  const parts = [part(low, start, []), part(start, end, [number]), part(end, high, [])];
  const shown = marked(parts, sample.nodes);
  if (low > 0) shown.prepend("… ");
  if (high < text.length) shown.append(" …");
  return shown;
}

/** Return samples that reach a node, right and wrong ones, which are asked for once it is opened. */
function examples(where, node, get) {
  const body = h("div.beside");
  const example = async (row) => h("article", hint(h("a", { href: sampleLink(row) }, titleOf(row)),
      row.step === null ? null : `, step ${format.int(row.step)}`, `, reward ${format.number(row.score)}`),
    excerpt(await get(`sample/${row.run}/${row.key}`), node.number));
  const side = async (kind) => {
    const { rows, total } = await get(`samples?${query({ ...where, node: node.number, verdict: kind, limit: EXAMPLES })}`);
    const shown = await Promise.all(rows.map(example));
    return h("section.card", 
      h("h3", verdict({ acc: Number(kind === "right") }), h("span.sub", ` ${format.int(total)}`)),
      shown.length ? shown : hint(`No ${kind} sample reaches it.`));
  };
  const details = h("details.examples", h("summary", "examples"), body);
  details.addEventListener("toggle", async () => {
    if (!details.open || body.firstChild) return;
    put(body, hint("…"));
    try {
      put(body, await Promise.all(["right", "wrong"].map(side)));
    } catch (error) {
      put(body, error.name === "AbortError" ? null : h("p.warned", { role: "alert" }, error.message));
    }
  });
  return details;
}

/** Return the columns that every table of nodes begins with. */
const nodeColumns = [
  { title: "no.", numeric: true, width: "at-no", cell: (node) => String(node.number + 1) },
  { title: "node", cell: (node) => [nodeLabel(node), nodeBadges(node)] },
];

/** Return the nodes of a problem: how often each was reached, and below it by whom.
    `keep`: a column that stands first; `data`: attributes of a row. */
function nodeTable(nodes, { run, id, right, wrong, dataset, get }, { keep, data } = {}) {
  const where = { run, problem: id, dataset };
  const rate = (title, name, of, verdict) => ({
    title, numeric: true, width: "at-rate", cell(node) {
      if (!of) return format.NONE;
      const figure = share(rateOf(node[name], of));
      return source.kept ? figure : h("a.plain", {
        href: link(["samples"], { ...where, verdict, node: node.number }),
        title: `${format.int(node[name])} of ${format.int(of)}`,
      }, figure, h("span.unseen", ` of ${verdict} samples reach node ${node.number + 1}`));
    },
  });
  const [number, words] = nodeColumns;
  const says = (node) => {
    const remark = judgement(node, right, wrong);
    const [first, ...others] = node.expressions.filter((text) => text !== nodeName(node));
    return [words.cell(node), remark ? h("span.badge.warn", remark) : null,
      first === undefined ? null : h("div", wording(first)),
      others.length ? wordings(others, format.count(others.length, "other expression")) : null];
  };
  return table({
    label: `Nodes of ${id}`, look: "node-table", rows: nodes, data,
    columns: [...(keep ? [keep] : []), number, { ...words, cell: says },
      rate("by right", "by_right", right, "right"), rate("by wrong", "by_wrong", wrong, "wrong")],
    below: (node) => (!source.kept && (node.by_right || node.by_wrong) ? examples(where, node, get) : null),
  });
}

views.problem = async function problem({ parts: [run, id], chosen, state, get, go }) {
  const data = await get(`problem/${encodeURIComponent(run)}/${encodeURIComponent(id)}?${query({ dataset: chosen.dataset })}`);
  const { nodes, history, problem: about, right, wrong, dataset } = data;
  const several = data.datasets.length > 1;
  const acc = history.x.map((_, at) => rateOf(history.right[at], history.right[at] + history.wrong[at]));
  const side = (name, counts, title) => heat({
    name, title, about: "percent of a step's samples; a row for each node", xTitle: "step", xs: history.x,
    rows: nodes.map(({ number }) => [String(number + 1),
      history.x.map((_, at) => rateOf(history.nodes[number][name][at], counts[at]))]),
  });
  const samples = link(["samples"], { run, problem: id, dataset: several ? dataset : null });
  const digests = data.datasets.map(({ digest, samples: count }) =>
    [digest, `${shortDigest(String(digest))}, ${format.count(count, "sample")}`]);
  return {
    title: id,
    element: [
      crumbs(runCrumb(state, run), ["problems", link(["problems"], { run: state.runs.length > 1 ? run : null })], [id]),
      h("h1", id),
      facts([["samples", h("a", { href: samples }, format.int(data.samples))], ["right", format.int(right)],
        ["wrong", format.int(wrong)], ["Acc", format.percent(rateOf(right, right + wrong))], ["source", about.source]]),
      several ? h("div.filters", choice("dataset", "dataset", digests, dataset,
        { all: null, onchange: (digest) => go(["problem", run, id], { dataset: digest }) }),
      hint("Several datasets scored this problem, each with its own nodes. The page shows the samples of one.")) : null,
      problemBox(about),
      nodes.length ? h("section", h("h2", "Nodes"),
        hint("Share of right and of wrong samples that reach each node. Click a figure to see them."),
        nodeTable(nodes, { run, id, right, wrong, dataset, get })) : null,
      history.x.length > 1 ? h("section", h("h2", "Over the steps"), h("div.charts", chart({
          kind: "line", name: "acc-ncr", title: "Acc and NCR", x: { title: "step", format: { decimals: 0 } },
          y: { title: "", format: PERCENT, low: 0, high: 1 },
          series: [{ name: "Acc", look: 0, x: history.x, y: acc }, { name: "NCR", look: 1, x: history.x, y: history.ncr }],
        }),
        nodes.length ? [side("by_right", history.right, "Nodes reached by right samples"),
          side("by_wrong", history.wrong, "Nodes reached by wrong samples")] : null)) : null,
      h("section", h("h2", data.samples > data.best.length ? "Best samples" : "All samples"),
        sampleTable("samples, the best first", data.best, state, { alike: true })),
    ],
  };
};

views.datasets = async function datasets({ state, get }) {
  const { rows } = await get("datasets");
  const name = (row) => row.file || row.name || shortDigest(row.digest);
  const int = (column) => ({ title: column, numeric: true, cell: (row) => format.int(row[column]) });
  return {
    title: "Datasets",
    element: [h("h1", "Datasets"), rows.length ? table({
        label: "datasets", rows, columns: [{ title: "name", head: true,
            cell: (row) => (row.browsable ? h("a", { href: link(["dataset", row.digest]) }, name(row)) : name(row)) },
          int("problems"), int("nodes"), int("samples"),
          { title: "runs", cell: (row) => row.runs.map((run) => runName(state, run)).join(", ") },
          { title: "digest", cell: (row) => shortDigest(row.digest) },
          { title: "note", cell: (row) => row.why || (row.reviewable ? "nodes can be reviewed" : "") },
        ],
      }) : h("p.empty", "No dataset. Pass one with --dataset."),
    ],
  };
};

views.dataset = async function dataset({ parts: [digest], chosen, state, get, go }) {
  const limit = Number(chosen.limit) || PROBLEMS;
  const offset = Number(chosen.offset) || 0;
  const path = `dataset/${encodeURIComponent(digest)}`;
  const page = await get(`${path}?${query({ ...chosen, limit, offset })}`);
  const reviewable = page.reviewable && !source.kept;
  const stored = `consensuspr.dropped.${digest}`;
  const drops = new Set(reviewable ? JSON.parse(localStorage.getItem(stored) || "[]") : []);
  const change = (next) => go(["dataset", digest], { ...chosen, offset: null, ...next });
  const keyOf = (problem, node) => JSON.stringify([problem.id, node.number]);
  const bar = h("div.review", { role: "region", "aria-label": "Review" });
  const written = h("p", { role: "status" });
  const fillBar = () => put(bar,
    h("p", drops.size ? `${format.count(drops.size, "node")} to drop` : "Untick nodes to drop, then write the new dataset."),
    h("button", { type: "button", class: "main", disabled: !drops.size, onclick: write }, "write the new dataset"),
    h("button", { type: "button", class: "quiet", disabled: !drops.size, onclick: keepAll }, "keep all"), written);
  const store = () => {
    localStorage.setItem(stored, JSON.stringify([...drops]));
    fillBar();
  };
  const keepAll = () => {
    drops.clear();
    store();
    fillList();
  };
  async function write() {
    written.textContent = "writing…";
    try {
      const made = await source.post(`${path}/review`, { drop: [...drops].map((key) => JSON.parse(key)) });
      keepAll();
      put(written, `Written without ${format.count(made.dropped, "node")}: `,
        h("code", made.file), " ", h("code", made.digest));
    } catch (error) {
      written.textContent = error.message;
    }
  }
  const keep = (problem) => ({
    title: "keep", width: "at-no", cell: (node) => h("input", {
      type: "checkbox", checked: !drops.has(keyOf(problem, node)),
      "aria-label": `keep node ${node.number + 1} of ${problem.id}`,
      onchange({ target }) {
        drops[target.checked ? "delete" : "add"](keyOf(problem, node));
        target.closest("tr").classList.toggle("dropped", !target.checked);
        written.textContent = "";
        store();
      },
    }),
  });
  const samples = (problem) => {
    const count = format.count(problem.samples, "sample");
    const href = link(["samples"], { run: chosen.run, problem: problem.id, dataset: digest });
    return [` Acc ${format.percent(rateOf(problem.right, problem.right + problem.wrong))} of `,
      source.kept ? count : h("a", { href }, count)];
  };
  const list = h("div");
  const fillList = () => put(list, page.rows.map((problem) => h("article.problem-review", 
    h("h2", problem.id, h("span.sub", problem.samples ? samples(problem) : " no sample yet")),
    problem.text ? prose(problem.text) : null,
    hint("right answer: ", problem.ground_truth === null ? format.NONE : wording(problem.ground_truth)),
    problem.nodes.length ? nodeTable(problem.nodes, { ...problem, run: chosen.run, dataset: digest, get }, reviewable ? {
      keep: keep(problem), data: (node) => (drops.has(keyOf(problem, node)) ? { class: "dropped" } : {}),
    } : {}) : hint("No nodes."))));
  fillBar();
  fillList();
  return {
    title: page.file || "Dataset",
    element: [crumbs(["datasets", link(["datasets"])], [page.file || shortDigest(digest)]),
      h("h1", page.file || "Dataset"), hint(h("code", digest)),
      reviewable ? bar : page.reviewable ? null : hint("To review its nodes, pass the dataset file with --dataset."),
      form("Which problems", problemSearch(chosen.q, (q) => change({ q })),
        choice("order", "sort", [["gap", "reached most by wrong samples first"]], chosen.sort,
          { all: "as in the file", always: true, onchange: (sort) => change({ sort }) }),
        source.kept ? null : choice("run", "run", state.runs.map(({ id, name }) => [id, name]), chosen.run,
          { onchange: (run) => change({ run }) })),
      h("div.bar", pager("no problem matches", page, limit, (to) => change({ offset: to }))), list,
    ],
  };
};
