/* Lists of samples: what is chosen stands in the address, the rows come page by page. */
(function (app) {
  "use strict";

  const { h, format, link } = app;
  const PAGE = 50;

  const KINDS = { suspicious: "suspicious", ...app.FLAGS };
  const MEANT = {
    suspicious: "samples with any of the three remarks that follow", guarded: "texts that state more than the guard allows",
    wrong_high: "the answer is wrong, and yet half of the nodes or more are reached", right_none: "the answer is right, and no node is reached",
    failed: "their status is not OK; none of them counts as 0",
  };

  /** Ways to look at samples that people ask for first: words, and what is chosen. */
  app.LOOKS = [
    ["newest", {}],
    ["best", { sort: "score" }],
    ["worst", { sort: "score", desc: 0 }],
    ["longest", { sort: "num_tokens" }],
    ...Object.entries(KINDS).map(([kind, words]) => [words, { kind }]),
  ];

  /** Return a link to one of the ways to look; `count` stands behind its words. */
  app.look = function look([words, chosen], href, attributes, count) {
    return h("li", {}, h("a", { href, title: MEANT[chosen.kind], ...attributes }, words, count));
  };

  const { clip } = app;
  const has = (state, column) => state.runs.some((run) => (run[column] || []).some((name) => name !== null));

  // In a list of one problem's samples, in place of the problem.
  const OWN_NAME = { id: "sample", title: "sample", unsorted: true, lead: true, cell: (row, _, at) => clip(app.titleOf(row, at)) };
  const COLUMNS = [
    { id: "problem", title: "problem", lead: true, cell: (row) => clip(row.problem) },
    { id: "run", title: "run", unsorted: true, hide: (state) => state.runs.length < 2, cell: (row, state) => clip(app.runName(state, row.run)) },
    { id: "step", title: "step", cell: (row) => format.int(row.step), numeric: true },
    { id: "model", title: "model", hide: (state) => !has(state, "models"), cell: (row) => clip(row.model) },
    { id: "diagnosis", title: "diagnosis", hide: (state) => !has(state, "diagnoses"), cell: (row) => clip(row.diagnosis) },
    { id: "acc", title: "verdict", cell: (row) => app.verdict(row) },
    { id: "score", title: "reward", about: "the score of the trainer, penalties included", cell: (row) => format.number(row.score), numeric: true },
    { id: "ncr", title: "NCR", about: "share of the problem's nodes that the text reaches, after the guard", cell: (row) => app.share(row.ncr), numeric: true },
    { id: "num_matched", title: "nodes", cell: (row) => nodesOf(row), numeric: true },
    { id: "guard", title: "guard", about: "factor of the guard against naming everything; 1 where it lets the NCR be", numeric: true,
      cell: (row) => (row.guard !== null && row.guard < 1 ? h("b", { class: "low" }, format.number(row.guard)) : format.short(row.guard)) },
    { id: "num_tokens", title: "tokens", cell: (row) => format.int(row.num_tokens), numeric: true },
    { id: "tpn", title: "TPN", about: "tokens per node that was reached", cell: (row) => format.tpn(row.tpn), numeric: true },
    { id: "answer", title: "answer", cell: (row) => h("span", { class: "clip", title: row.answer }, format.text(row.answer)) },
    { id: "flags", title: "remarks", unsorted: true, cell: (row) => app.remarks(row) },
  ];

  function nodesOf(row) {
    return row.num_nodes === null ? format.NONE : `${format.int(row.num_matched)}\u2009/\u2009${format.int(row.num_nodes)}`;
  }

  app.nodesOf = nodesOf;
  app.digest = (digest) => `${digest.slice(0, 15)}…`;
  app.runName = (state, id) => (state.runs.find((run) => run.id === Number(id)) || { name: `run ${id}` }).name;
  app.sampleLink = (row) => link(["sample", row.run, row.key]);
  app.groupLink = (row) => link(["group", row.run], { step: row.step, split: row.split, model: row.model, ...(row.group ? { group: row.group } : { problem: row.problem }) });
  app.problemLink = (row) => link(["problem", row.run, row.problem]);
  app.titleOf = (row, at) => row.rollout_id || (at === undefined ? "sample" : `no. ${at + 1}`);

  /** Return a table whose rows lead to `href(row)`.  `columns`: as `app.heads` takes them, with
      `cell(row, at)`; the one with `lead` holds the link.  `data(row)`: more attributes of a row. */
  app.rowTable = function rowTable({ label, columns, rows, href, data, name, sort, up, onsort }) {
    return app.scroll(label, h("table", { class: "rows" }, h("caption", { class: "unseen" }, label), app.heads(columns, sort, up, onsort),
      h("tbody", {}, rows.map((row, at) => h("tr", { "data-href": href(row), ...(data ? data(row) : {}) }, columns.map((column) => {
        const cell = column.cell(row, at);
        return h("td", { class: column.numeric ? "figure" : null }, column.lead ? h("a", { href: href(row), class: "row", "aria-label": name ? name(row) : null }, cell) : cell);
      }))))));
  };

  /** Return a table of samples.  `alike`: all are of one run and problem. */
  app.sampleTable = function sampleTable(rows, state, { chosen = {}, onsort, caption = "samples", alike } = {}) {
    const shown = COLUMNS.filter((column) => !(column.hide && column.hide(state)));
    const columns = alike ? [OWN_NAME, ...shown.filter(({ id }) => id !== "problem" && id !== "run")] : shown;
    return app.rowTable({
      label: caption, rows, onsort, sort: chosen.sort, up: String(chosen.desc) === "0", href: app.sampleLink,
      columns: columns.map((column) => ({ ...column, cell: (row, at) => column.cell(row, state, at) })),
      data: (row) => ({ "data-group": app.groupLink(row), "data-problem": app.problemLink(row) }),
      name: alike ? null : (row) => `sample of ${row.problem}, step ${format.int(row.step)}`,
    });
  };

  /** Return the head of a table: `columns`: `{id, title, about, over, numeric, unsorted}`; neighbours with
      the same `over` stand under that heading.  `onsort(id, up)` hears by which column it is to be sorted. */
  app.heads = function heads(columns, sort, up, onsort) {
    const over = [];
    for (const column of columns) {
      const last = over[over.length - 1];
      if (last && column.over && last.title === column.over) last.span += 1;
      else over.push({ title: column.over, span: 1 });
    }
    const first = new Set(columns.filter((column, at) => column.over && (!at || columns[at - 1].over !== column.over)));
    return h("thead", {},
      over.some((one) => one.title) ? h("tr", { class: "over" }, over.map(({ title, span }) =>
        (title ? h("th", { scope: "colgroup", colspan: String(span), class: "begins" }, title) : h("td", { colspan: String(span) })))) : null,
      h("tr", {}, columns.map((column) => {
        const sorted = sort === column.id;
        const look = [column.numeric ? "figure" : null, first.has(column) ? "begins" : null].filter((name) => name);
        return h("th", { scope: "col", title: column.about, class: look.length ? look.join(" ") : null, "aria-sort": sorted ? (up ? "ascending" : "descending") : null },
          !onsort || column.unsorted || app.source.kept ? column.title : h("button", { type: "button", "aria-label": column.over ? `${column.over}, ${column.title}` : null, onclick: () => onsort(column.id, sorted && !up) }, column.title));
      })));
  };

  // A click beside the link of a row opens it too; text that is being selected does not.
  document.addEventListener("click", (event) => {
    if (event.target.closest("a, button, input, summary, select") || String(getSelection())) return;
    const row = event.target.closest("tr[data-href]");
    if (row) location.hash = row.dataset.href;
  });

  /** What was shown last: from a sample one goes on to the next of them. */
  app.lastList = { hashes: [], back: null };

  /** Return the names of something in all runs, as choices; none if there is no name. */
  app.namesOf = (state, column) =>
    [...new Set(state.runs.flatMap((run) => run[column] || []))].filter((name) => name !== null && name !== "").sort().map((name) => [name, name]);

  /** Return a labelled choice, or null where there is nothing to choose. */
  app.choice = function choice(label, name, options, chosen, more) {
    const { all = "all", always, onchange } = more || {};
    if (options.length < 2 && !always) return null;
    return h("label", { class: "field" }, h("span", {}, label),
      h("select", { name, onchange: onchange && ((event) => onchange(event.target.value || null)) },
        all === null ? null : h("option", { value: "" }, all),
        options.map(([value, text]) => h("option", { value, selected: String(chosen) === String(value) }, text))));
  };

  /** Return a button that turns to an offset; null: there is no such page. */
  app.turn = (to, words, sign, key, change) => h("button", {
    type: "button", disabled: to === null, "aria-label": words, "aria-keyshortcuts": key, onclick: () => change(to || null),
  }, sign);

  /** Return how far a list is shown, with what turns its pages. */
  app.pager = (nothing, total, offset, limit, shown, change) => [
    h("p", { id: "count", role: "status" }, total ? `${format.int(offset + 1)}–${format.int(offset + shown)} of ${format.int(total)}` : nothing),
    h("span", { class: "pager" }, app.turn(offset > 0 ? Math.max(0, offset - limit) : null, "previous page", "‹", "[", change), app.turn(offset + shown < total ? offset + limit : null, "next page", "›", "]", change)),
  ];

  /** Return the form that says what is chosen; it changes the address. */
  function filters(chosen, state, onchange) {
    const plain = (names) => names.map((name) => [name, name]);
    const statuses = [...new Set(state.runs.flatMap((run) => Object.keys(run.statuses || {})))].sort();
    const input = (label, name, more) => h("label", { class: "field asks" }, h("span", {}, label),
      h("input", { name, type: "text", value: chosen[name] || "", autocomplete: "off", spellcheck: "false", ...more }));
    const form = h("form", { class: "filters", role: "search", "aria-label": "Filters" },
      h("label", { class: "field wide asks" }, h("span", {}, "text"),
        h("input", { name: "q", type: "search", id: "search", value: chosen.q || "", autocomplete: "off", placeholder: "text in the response", "aria-keyshortcuts": "/" })),
      app.choice("run", "run", state.runs.map((run) => [run.id, run.name]), chosen.run),
      app.choice("verdict", "verdict", plain(["right", "wrong", "unknown"]), chosen.verdict),
      app.source.kept ? null : app.choice("remark", "kind", Object.entries(KINDS), chosen.kind),
      app.choice("source", "source", app.namesOf(state, "sources"), chosen.source),
      app.choice("split", "split", app.namesOf(state, "splits"), chosen.split),
      app.choice("model", "model", app.namesOf(state, "models"), chosen.model),
      app.choice("diagnosis", "diagnosis", app.namesOf(state, "diagnoses"), chosen.diagnosis),
      app.choice("status", "status", plain(statuses), chosen.status),
      input("step", "step", { inputmode: "numeric", placeholder: "40 or 10..20", size: "8" }),
      input("problem", "problem", { placeholder: "id", size: "12" }),
      chosen.group ? input("group", "group", { size: "12" }) : null,
      chosen.node === undefined ? null : h("button", { type: "button", class: "fresh", onclick: () => onchange({ ...chosen, node: null, offset: null }) }, `reaching node ${Number(chosen.node) + 1} ✕`),
      chosen.dataset === undefined ? null : h("button", { type: "button", class: "fresh", title: chosen.dataset, onclick: () => onchange({ ...chosen, dataset: null, offset: null }) }, `scored with ${app.digest(chosen.dataset)} ✕`),
      input("NCR", "ncr", { placeholder: "0.5..1", size: "6" }),
      input("reward", "reward", { placeholder: "0..0.2", size: "6" }),
      input("tokens", "tokens", { placeholder: "1000..", size: "6" }),
      h("button", { type: "button", class: "quiet", onclick: () => onchange({}) }, "clear"));
    const read = () => {
      const next = { ...chosen, offset: null };
      for (const control of form.elements) if (control.name) next[control.name] = control.value.trim() || null;
      if (next.q) next.sort = next.desc = null; // texts are searched from the newest on
      // Several of a kind come by link; the form knows one.
      for (const [name, value] of Object.entries(chosen)) if (Array.isArray(value) && next[name] === null) next[name] = value;
      onchange(next);
    };
    form.addEventListener("submit", (event) => { event.preventDefault(); read(); });
    // A page that was kept has the samples of one choice at a time.
    form.addEventListener("change", ({ target }) => (app.source.kept ? onchange({ [target.name]: target.value || null }) : read()));
    return form;
  }

  app.views.samples = async function samples({ chosen, state, get, go }) {
    const limit = Number(chosen.limit) || PAGE;
    const offset = Number(chosen.offset) || 0;
    const ask = (more) => get(`samples?${app.query({ ...chosen, limit, offset, ...more })}`);
    // The message about a bad filter stands beside its form.
    let page = await ask().catch((error) => {
      if (error.status !== 400) throw error;
      return { rows: [], total: 0, search: null, fault: error.message };
    });
    const change = (next) => go(["samples"], next);
    const sort = (id, up) => change({ ...chosen, sort: id, desc: up ? 0 : null, offset: null });
    const keep = ({ kind: _, sort: __, desc: ___, offset: ____, ...others }, look) => (app.source.kept ? {} : look.sort ? { ...others, q: null } : others);
    const same = (look) => ["kind", "sort", "desc"].every((name) => String(chosen[name] === undefined ? "" : chosen[name]) === String(look[name] === undefined ? "" : look[name]));
    const fresh = h("button", { type: "button", class: "fresh", hidden: true, onclick: () => app.show() });
    const bar = h("div", { class: "bar" });
    const list = h("div");
    const turn = (to) => change({ ...chosen, offset: to });
    // Texts are searched from the offset on, until a page of samples is found.
    const found = ({ rows, search }) => [
      h("p", { id: "count", role: "status" }, `${format.count(rows.length, "sample")} with it in `, search.complete ? `all ${format.int(search.candidates)} texts` : `${format.int(search.searched)} of ${format.int(search.candidates)} texts`,
        search.without_text ? `, ${format.int(search.without_text)} not kept` : ""),
      h("span", { class: "pager" }, app.turn(offset ? 0 : null, "first page", "‹", "[", turn), app.turn(search.complete ? null : search.searched, "next page", "›", "]", turn)),
    ];
    const fill = () => {
      const { search, rows, total, fault } = page;
      app.lastList = { hashes: rows.map(app.sampleLink), back: link(["samples"], chosen) };
      bar.replaceChildren(...(search ? found(page) : app.pager("no sample matches", total, offset, limit, rows.length, turn)),
        fresh, h("button", { type: "button", class: "quiet asks", disabled: !search && !total, onclick: () => app.download(chosen) }, "download as CSV"));
      list.replaceChildren(fault ? h("p", { class: "warned", role: "alert" }, fault) : rows.length ? app.sampleTable(rows, state, { chosen, onsort: search ? null : sort, caption: "Samples" })
        : h("p", { class: "empty" }, search && !search.complete ? "Texts are being read." : "Nothing to show. Remove a filter above."));
    };
    fill();
    return {
      title: "Samples",
      element: [
        h("h1", {}, "Samples"),
        h("ul", { class: "looks", "aria-label": "Views of the samples" }, app.LOOKS.map((look) =>
          app.look(look, link(["samples"], { ...keep(chosen, look[1]), ...look[1] }), { "aria-current": same(look[1]) ? "true" : null }))),
        filters(chosen, state, change), bar, list,
      ],
      // A request reads texts for a second.
      async goOn() {
        while (page.search && !page.search.complete && page.rows.length < limit) {
          const { rows, search } = await ask({ offset: page.search.searched, limit: limit - page.rows.length });
          search.without_text += page.search.without_text;
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

  app.download = async function download({ offset: _, limit: __, ...chosen }) {
    try {
      const href = await app.source.csv(chosen);
      h("a", { href, download: "samples.csv" }).click();
      app.tell("The samples are being downloaded.");
    } catch (error) {
      app.tell(error.message);
      window.alert(error.message);
    }
  };
})((window.consensuspr = window.consensuspr || {}));
