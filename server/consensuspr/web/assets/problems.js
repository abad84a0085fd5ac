/* Problems and their nodes: of a run, over its steps, and of a dataset, where nodes are reviewed. */
(function (app) {
  "use strict";

  const { h, format, link } = app;
  const PAGE = 50;
  const PROBLEMS = 20; // of a dataset on one page
  const PERCENT = { scale: 100, decimals: 0, unit: "\u202f%" };

  // What stands under one heading belongs together: "first" is the Acc of the first step.
  const COLUMNS = [
    ["problem", "problem", "text"], ["source", "source", "text"], ["samples", "samples", "int"], ["reward", "reward", "number"],
    ["acc", "all", "share", "Acc"], ["first_acc", "first step", "percent", "Acc"], ["last_acc", "last step", "percent", "Acc"], ["change", "change", "change", "Acc"],
    ["ncr", "all", "share", "NCR"], ["ncr_right", "right", "percent", "NCR"], ["ncr_wrong", "wrong", "percent", "NCR"],
  ];
  const SAY = {
    ...format, share: (value) => app.share(value),
    change: (value) => (value === null ? format.NONE : h("span", { class: value > 0 ? "yes" : value < 0 ? "no" : null }, `${value > 0 ? "+" : value < 0 ? "−" : "±"}${Math.round(Math.abs(100 * value))}`)),
  };

  const search = (value, placeholder, onchange) => h("label", { class: "field wide asks" }, h("span", {}, "problem"),
    h("input", { id: "search", type: "search", value: value || "", placeholder, autocomplete: "off", "aria-keyshortcuts": "/", onchange: (event) => onchange(event.target.value.trim() || null) }));

  app.views.problems = async function problems({ chosen, state, get, go }) {
    const limit = Number(chosen.limit) || PAGE;
    const offset = Number(chosen.offset) || 0;
    const run = chosen.run === undefined ? state.runs[0].id : [chosen.run].flat()[0];
    const page = await get(`problems?${app.query({ ...chosen, run, limit, offset })}`);
    const change = (next) => go(["problems"], { ...chosen, offset: null, ...next });
    const pick = (label, name, options, more) => app.choice(label, name, options, name === "run" ? run : chosen[name], { ...more, onchange: (value) => change({ [name]: value }) });
    const sort = chosen.sort || "samples";
    return {
      title: "Problems",
      element: [
        h("h1", {}, "Problems"),
        h("form", { class: "filters", onsubmit: (event) => event.preventDefault(), role: "search", "aria-label": "Which problems" },
          search(chosen.q, "part of its id", (q) => change({ q })), pick("run", "run", state.runs.map((one) => [one.id, one.name]), { all: null }),
          app.source.kept ? null : [pick("source", "source", app.namesOf(state, "sources")), pick("split", "split", app.namesOf(state, "splits")), pick("model", "model", app.namesOf(state, "models"))]),
        h("div", { class: "bar" }, app.pager("no problem matches", page.total, offset, limit, page.rows.length, (to) => change({ offset: to }))),
        app.rowTable({
          label: "problems", rows: page.rows, sort, up: String(chosen.desc) === "0", onsort: (id, up) => change({ sort: id, desc: up ? 0 : null }),
          href: (row) => app.problemLink({ run, problem: row.problem }), data: (row) => ({ "data-problem": app.problemLink({ run, problem: row.problem }) }),
          columns: COLUMNS.map(([id, title, kind, over]) => ({ id, title, over, numeric: kind !== "text", lead: id === "problem", cell: (row) => (id === "problem" ? app.clip(row.problem) : SAY[kind](row[id])) })),
        }),
      ],
    };
  };

  const share = (count, of) => (of ? count / of : null);

  /** Return what a node's rates say of it, or null. */
  function judgement(node, rights, wrongs) {
    const [right, wrong] = [share(node.by_right, rights), share(node.by_wrong, wrongs)];
    if (right === null || wrong === null || rights + wrongs < 8) return null;
    if (right < 0.02 && wrong < 0.02) return "hardly ever reached";
    if (wrong >= right) return "by wrong as often as by right";
    return null;
  }

  const EXAMPLES = 2; // of right samples that reach a node, and of wrong ones
  const AROUND = 240; // characters on each side of a hit, where no line ends sooner

  /** Return what is written around the hit of a node. */
  function excerpt(sample, number) {
    if (sample.text === null) return h("p", { class: "about" }, sample.text_why);
    const pieces = sample.text.map((piece) => (piece.skipped === undefined ? piece : { text: "\n", nodes: [], ends: [] }));
    const text = pieces.map((piece) => piece.text).join("");
    const hit = pieces.findIndex((piece) => piece.nodes.includes(number));
    if (hit < 0) return h("p", { class: "about" }, sample.explained_why || "Its place in the text is not known.");
    let behind = hit;
    while (behind < pieces.length && pieces[behind].nodes.includes(number)) behind += 1;
    const size = (some) => some.reduce((sum, piece) => sum + piece.text.length, 0);
    const [start, end] = [size(pieces.slice(0, hit)), size(pieces.slice(0, behind))];
    const line = (from) => text.lastIndexOf("\n", from - 1) + 1;
    const before = Math.max(start - AROUND, line(Math.max(0, line(start) - 1)));
    const low = before + text.slice(before, start).search(/\S|$/);
    const below = text.indexOf("\n", end);
    const high = Math.min(end + AROUND, below < 0 ? text.length : below);
    const parts = [[low, start, []], [start, end, [number]], [end, high, []]].map(([from, to, nodes]) => ({ text: text.slice(from, to), nodes, ends: nodes }));
    const marked = app.marked(parts, sample.nodes, { rendered: app.rendered() });
    if (low > 0) marked.prepend("… ");
    if (high < text.length) marked.append(" …");
    return marked;
  }

  /** Return samples that reach a node, right and wrong ones, which are asked for once it is opened. */
  function examples(where, node, get) {
    const body = h("div", { class: "beside" });
    const details = h("details", { class: "examples" }, h("summary", {}, "examples"), body);
    const side = async (verdict) => {
      const { rows, total } = await get(`samples?${app.query({ ...where, node: node.number, verdict, limit: EXAMPLES })}`);
      const shown = await Promise.all(rows.map(async (row) => h("article", {},
        h("p", { class: "about" }, h("a", { href: app.sampleLink(row) }, app.titleOf(row)), row.step === null ? null : `, step ${format.int(row.step)}`, `, reward ${format.number(row.score)}`),
        excerpt(await get(`sample/${row.run}/${row.key}`), node.number))));
      return h("section", { class: "card" }, h("h3", {}, app.verdict({ acc: Number(verdict === "right"), status: "OK" }), h("span", { class: "sub" }, ` ${format.int(total)}`)),
        shown.length ? shown : h("p", { class: "about" }, `No ${verdict} sample reaches it.`));
    };
    let asked = false;
    details.addEventListener("toggle", async () => {
      if (!details.open || asked) return;
      asked = true;
      body.replaceChildren(h("p", { class: "about" }, "…"));
      try {
        body.replaceChildren(...await Promise.all(["right", "wrong"].map(side)));
      } catch (error) {
        asked = false;
        if (error.name !== "AbortError") body.replaceChildren(h("p", { class: "warned", role: "alert" }, error.message));
      }
    });
    return details;
  }

  /** Return the rows of a node: what it says, how often it was reached, what one may think of it; and
      below it who reaches it.  `before`: a cell that stands first. */
  function nodeRows(node, { run, id, right, wrong, dataset, get }, before) {
    const where = { run, problem: id, dataset };
    const rate = (count, of, verdict) => h("td", { class: "figure" },
      of && !app.source.kept ? h("a", { class: "plain", href: link(["samples"], { ...where, verdict, node: node.number }), title: `${format.int(count)} of ${format.int(of)}` },
        app.share(share(count, of)), h("span", { class: "unseen" }, ` of ${verdict} samples reach node ${node.number + 1}`)) : of ? app.share(share(count, of)) : format.NONE);
    const remark = judgement(node, right, wrong);
    const some = !app.source.kept && (node.by_right || node.by_wrong);
    const cells = [
      h("td", { class: "figure" }, String(node.number + 1)),
      h("td", { class: "says" }, app.prose(node.label || node.id || `node ${node.number + 1}`), app.nodeBadges(node),
        remark ? h("span", { class: "badge warn" }, remark) : null, node.expressions.length ? app.wordings(node.expressions) : null),
      rate(node.by_right, right, "right"), rate(node.by_wrong, wrong, "wrong"),
    ];
    const blank = before ? 2 : 1;
    return [
      h("tr", { class: some ? "node-row" : null }, before ? h("td", {}, before) : null, cells),
      some ? h("tr", {}, h("td", { colspan: String(blank) }), h("td", { colspan: String(cells.length - 1) }, examples(where, node, get))) : null,
    ].filter((row) => row);
  }

  const NODE_HEADS = [["no.", true], ["node", false], ["by right", true], ["by wrong", true]];
  const heads = (titles) => h("thead", {}, h("tr", {}, titles.map(([title, numeric]) => h("th", { scope: "col", class: `${numeric ? "figure" : ""} at-${title.replace(/\W/g, "")}` }, title))));

  app.views.problem = async function problem({ parts: [run, id], chosen, state, get, go }) {
    const data = await get(`problem/${encodeURIComponent(run)}/${encodeURIComponent(id)}?${app.query({ dataset: chosen.dataset })}`);
    const { nodes, history, problem: about, right, wrong, dataset } = data;
    const severalDatasets = data.datasets.length > 1;
    const box = app.problemBox(about);
    const body = h("tbody");
    const redraw = () => {
      box.redraw();
      body.replaceChildren(...nodes.flatMap((node) => nodeRows(node, { run, id, right, wrong, dataset, get })));
    };
    redraw();
    const axes = { kind: "line", x: { title: "step", format: { decimals: 0 } }, y: { title: "", format: PERCENT, low: 0, high: 1 } };
    const side = (name, counts, title) => app.heat({
      name, title, about: "percent of a step's samples; a row for each node", xTitle: "step", xs: history.x,
      rows: nodes.map((node) => [String(node.number + 1), history.x.map((_, at) => share(history.nodes[node.number][name][at], counts[at]))]),
    });
    return {
      title: id, redraw,
      element: [
        app.crumbs([app.runName(state, run), link(["overview"], { run: state.runs.length > 1 ? run : null })], ["problems", link(["problems"], { run: state.runs.length > 1 ? run : null })], [id]),
        h("h1", {}, id),
        app.facts([["samples", h("a", { href: link(["samples"], { run, problem: id, dataset: severalDatasets ? dataset : null }) }, format.int(data.samples))], ["right", format.int(right)], ["wrong", format.int(wrong)], ["Acc", format.percent(share(right, right + wrong))], ["source", about.source]]),
        severalDatasets ? h("div", { class: "filters" }, app.choice("dataset", "dataset", data.datasets.map((one) => [one.digest, `${app.digest(one.digest)}, ${format.count(one.samples, "sample")}`]), dataset,
          { all: null, onchange: (digest) => go(["problem", run, id], { dataset: digest }) }),
          h("p", { class: "about" }, "Its nodes are not the same in all datasets that it was scored with; here are the samples of one.")) : null,
        box,
        nodes.length ? h("section", {}, h("h2", {}, "Nodes"),
          h("p", { class: "about" }, "Share of the right and of the wrong samples that reach each node; a figure leads to them."),
          app.scroll("nodes", h("table", { class: "node-table" }, h("caption", { class: "unseen" }, "Nodes"), heads(NODE_HEADS), body))) : null,
        history.x.length > 1 ? h("section", {}, h("h2", {}, "Over the steps"), h("div", { class: "charts" },
          app.chart({ name: "acc-ncr", title: "Acc and NCR", ...axes, series: [{ name: "Acc", look: 0, x: history.x, y: history.x.map((_, at) => share(history.right[at], history.right[at] + history.wrong[at])) }, { name: "NCR", look: 1, x: history.x, y: history.ncr }] }),
          nodes.length ? [side("by_right", history.right, "Nodes reached by right samples"), side("by_wrong", history.wrong, "Nodes reached by wrong samples")] : null)) : null,
        [["newest", "Newest"], ["best", "Best"], ["worst", "Worst"]].map(([name, title]) => (data[name].length
          ? h("section", {}, h("h2", {}, title), app.sampleTable(data[name], state, { caption: `${title} samples`, alike: true })) : null)),
      ],
    };
  };

  app.views.datasets = async function datasets({ state, get }) {
    const { rows } = await get("datasets");
    return {
      title: "Datasets",
      element: [
        h("h1", {}, "Datasets"),
        rows.length ? app.table({
          sortable: true,
          columns: [{ heading: "name" }, { heading: "problems", numeric: true }, { heading: "nodes", numeric: true }, { heading: "samples", numeric: true }, { heading: "runs" }, { heading: "digest" }, { heading: "nodes shown here" }],
          sections: [rows.map((one) => [
            { value: one.file || one.name || one.digest.slice(0, 19), href: one.browsable ? link(["dataset", one.digest]) : "" }, one.problems, one.nodes, one.samples,
            one.runs.map((run) => app.runName(state, run)).join(", "), `${one.digest.slice(0, 19)}…`, one.why || (one.reviewable ? "can be reviewed" : "")])],
        }) : h("p", { class: "empty" }, "No dataset is known here. Give one with --dataset."),
      ],
    };
  };

  const REVIEW = (digest) => `consensuspr.dropped.${digest}`;
  const readDrops = (digest) => new Set(JSON.parse(localStorage.getItem(REVIEW(digest)) || "[]"));
  const writeDrops = (digest, drops) => (drops.size ? localStorage.setItem(REVIEW(digest), JSON.stringify([...drops])) : localStorage.removeItem(REVIEW(digest)));

  app.views.dataset = async function dataset({ parts: [digest], chosen, state, get, go }) {
    const limit = Number(chosen.limit) || PROBLEMS;
    const offset = Number(chosen.offset) || 0;
    const page = await get(`dataset/${encodeURIComponent(digest)}?${app.query({ ...chosen, limit, offset })}`);
    const reviewable = page.reviewable && !app.source.kept;
    const drops = readDrops(digest);
    const change = (next) => go(["dataset", digest], { ...chosen, offset: null, ...next });
    const keyOf = (problem, node) => JSON.stringify([problem.id, node.number]);
    const bar = h("div", { class: "review", role: "region", "aria-label": "Review" });
    const written = h("p", { role: "status" });
    const fillBar = () => bar.replaceChildren(
      h("p", {}, drops.size ? `${format.count(drops.size, "node")} to drop` : "Untick nodes to drop, then write the new dataset."),
      h("button", { type: "button", class: "main", disabled: !drops.size, onclick: write }, "write the new dataset"),
      h("button", { type: "button", class: "quiet", disabled: !drops.size, onclick: keepAll }, "keep all"), written);
    const keepAll = () => {
      drops.clear();
      writeDrops(digest, drops);
      view.redraw();
    };
    async function write() {
      written.textContent = "writing…";
      try {
        const made = await app.source.post(`dataset/${encodeURIComponent(digest)}/review`, { drop: [...drops].map((one) => JSON.parse(one)) });
        drops.clear();
        writeDrops(digest, drops);
        view.redraw();
        written.replaceChildren(`Written without ${format.count(made.dropped, "node")}: `, h("code", {}, made.file), " ", h("code", {}, made.digest));
      } catch (error) {
        written.textContent = error.message;
      }
    }
    const line = (problem, node) => {
      const key = keyOf(problem, node);
      const keep = reviewable ? h("input", {
        type: "checkbox", checked: !drops.has(key), "aria-label": `keep node ${node.number + 1} of ${problem.id}`,
        onchange() {
          if (keep.checked) drops.delete(key);
          else drops.add(key);
          rows[0].classList.toggle("dropped", !keep.checked);
          writeDrops(digest, drops);
          written.textContent = "";
          fillBar();
        },
      }) : null;
      const rows = nodeRows(node, { ...problem, run: chosen.run, dataset: digest, get }, keep);
      rows[0].classList.toggle("dropped", drops.has(key));
      return rows;
    };
    const list = h("div");
    const view = {
      title: page.file || "Dataset",
      redraw() {
        fillBar();
        list.replaceChildren(...page.rows.map((problem) => h("article", { class: "problem-review" },
          h("h2", {}, problem.id, h("span", { class: "sub" }, problem.samples
            ? [` Acc ${format.percent(share(problem.right, problem.right + problem.wrong))} of `, app.source.kept ? format.count(problem.samples, "sample") : h("a", { href: link(["samples"], { run: chosen.run, problem: problem.id, dataset: digest }) }, format.count(problem.samples, "sample"))] : " no sample yet")),
          problem.text ? app.prose(problem.text) : null,
          h("p", { class: "about" }, "right answer: ", problem.ground_truth === null ? format.NONE : app.wording(problem.ground_truth)),
          problem.nodes.length ? app.scroll(`nodes of ${problem.id}`, h("table", { class: "node-table" }, h("caption", { class: "unseen" }, `Nodes of ${problem.id}`), heads(reviewable ? [["keep", false], ...NODE_HEADS] : NODE_HEADS), h("tbody", {}, problem.nodes.map((node) => line(problem, node)))))
            : h("p", { class: "about" }, "No nodes."))));
      },
      element: [
        app.crumbs(["datasets", link(["datasets"])], [page.file || `${digest.slice(0, 19)}…`]),
        h("h1", {}, page.file || "Dataset"), h("p", { class: "about" }, h("code", {}, digest)),
        reviewable ? bar : page.reviewable ? null : h("p", { class: "about" }, "To review its nodes, pass the dataset file with --dataset."),
        h("form", { class: "filters", onsubmit: (event) => event.preventDefault(), role: "search", "aria-label": "Which problems" },
          search(chosen.q, "part of its id", (q) => change({ q })),
          app.choice("order", "sort", [["gap", "most often by wrong first"]], chosen.sort, { all: "as in the file", always: true, onchange: (sort) => change({ sort }) }),
          app.source.kept ? null : app.choice("run", "run", state.runs.map((one) => [one.id, one.name]), chosen.run, { onchange: (run) => change({ run }) })),
        h("div", { class: "bar" }, app.pager("no problem matches", page.total, offset, limit, page.rows.length, (to) => change({ offset: to }))), list,
      ],
    };
    view.redraw();
    return view;
  };
})((window.consensuspr = window.consensuspr || {}));
