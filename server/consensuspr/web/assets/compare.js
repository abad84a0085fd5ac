/* Two sides beside each other: runs, models, or early and late steps of one run.  What changed over
   all problems, and of one problem the samples of both. */
(function (app) {
  "use strict";

  const { h, format, link, known } = app;
  const PAGE = 50;
  const MOST = 500; // samples of a problem that a side is judged by, the newest ones
  const PARTS = 4; // of a whole change, on each side of none; as the server counts them
  const SIDES = ["a", "b"];
  const KEYS = ["a", "a_model", "a_step", "b", "b_model", "b_step"];
  const COMMON = ["source", "split"];
  const INT = { decimals: 0 };

  const only = (names, from) => Object.fromEntries(names.filter((name) => known(from[name])).map((name) => [name, from[name]]));

  /** Return whether there are two sides of anything. */
  app.comparable = (state) => state.runs.length > 1 || state.runs.some((run) => run.models.filter((name) => name).length > 1 || (run.steps && run.steps[0] < run.steps[1]));

  /** Return what is compared where nothing is chosen: two runs, two models, or both ends of a run. */
  function standard(state) {
    const [first, second] = state.runs;
    if (second) return { a: first.id, b: second.id };
    const models = first.models.filter((name) => name);
    if (models.length > 1) return { a: first.id, a_model: models[0], b: first.id, b_model: models[1] };
    if (!first.steps || first.steps[0] === first.steps[1]) return { a: first.id, b: first.id };
    const [low, high] = first.steps;
    const part = Math.floor((high - low) / 3);
    return { a: first.id, a_step: `${low}..${low + part}`, b: first.id, b_step: `${high - part}..${high}` };
  }

  const sidesOf = (chosen, state) => {
    const given = only(KEYS, chosen);
    return { ...(Object.keys(given).length ? { a: state.runs[0].id, b: state.runs[0].id, ...given } : standard(state)), ...only(COMMON, chosen) };
  };
  /** Return which samples a side has, as the list of samples says it. */
  const samplesOf = (where, side) => ({ run: where[side], model: where[`${side}_model`], step: where[`${side}_step`], ...only(COMMON, where) });

  function nameOf(where, side, state) {
    const parts = [];
    const same = String(where.a) === String(where.b);
    if (!same || (!where.a_model && !where.a_step && !where.b_model && !where.b_step)) parts.push(app.runName(state, where[side]));
    if (where[`${side}_model`]) parts.push(where[`${side}_model`]);
    if (where[`${side}_step`]) parts.push(`step ${String(where[`${side}_step`]).replace("..", "–")}`);
    return parts.join(", ") || "all";
  }

  const tag = (side) => h("b", { class: `side side-${side}` }, side.toUpperCase());

  /** A difference with its sign, in words alone; a whole one is 100 points. */
  function saySigned(value, points) {
    if (!known(value)) return format.NONE;
    const shown = points ? (100 * value).toFixed(1).replace(/\.0$/, "") : format.number(Math.abs(value));
    if (Number(shown) === 0) return "±0";
    return `${value > 0 ? "+" : "−"}${shown.replace("-", "")}`;
  }
  /** The same in colour, unless it may as well be none. */
  function signed(value, points, plain) {
    const shown = saySigned(value, points);
    return h("span", { class: plain || !/[1-9]/.test(shown) ? null : value > 0 ? "yes" : "no" }, shown);
  }

  function sideForm(where, side, state, change) {
    const put = (name) => (value) => change({ [name]: value });
    return h("fieldset", { class: "filters side-form" }, h("legend", {}, tag(side)),
      app.choice("run", side, state.runs.map((run) => [run.id, run.name]), where[side], { all: null, onchange: put(side) }),
      app.choice("model", `${side}_model`, app.namesOf(state, "models"), where[`${side}_model`], { onchange: put(`${side}_model`) }),
      state.runs.some((run) => run.steps) ? h("label", { class: "field asks" }, h("span", {}, "step"),
        h("input", { name: `${side}_step`, type: "text", value: where[`${side}_step`] || "", placeholder: "all, 40 or 10..20", size: "12", autocomplete: "off", onchange: (event) => put(`${side}_step`)(event.target.value.trim() || null) })) : null);
  }

  const FIGURES = [["samples", "samples", format.int], ["problems", "problems", format.int], ["acc", "Acc", format.percent], ["ncr", "NCR", format.percent],
    ["ncr_wrong", "NCR of wrong", format.percent], ["reward", "reward", format.number], ["guarded", "guarded", format.percent], ["tokens", "tokens", format.int]];

  function sideTable(where, page, state) {
    const figures = FIGURES.filter(([name]) => SIDES.some((side) => known(page.sides[side][name])));
    return app.scroll("both sides", h("table", { class: "runs" },
      h("caption", { class: "unseen" }, "Both sides over all of their samples"),
      h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "side"), figures.map(([, title]) => h("th", { scope: "col", class: "figure" }, title)))),
      h("tbody", {}, SIDES.map((side) => h("tr", {},
        h("th", { scope: "row" }, tag(side), " ", h("a", { href: link(["samples"], samplesOf(where, side)) }, nameOf(where, side, state))),
        figures.map(([name, , say]) => h("td", { class: "figure" }, say(page.sides[side][name]))))))));
  }

  function interval({ mean, error, count }, points) {
    if (!known(mean)) return format.NONE;
    if (!known(error) || count < 2) return signed(mean, points, true);
    const [low, high] = [mean - 1.96 * error, mean + 1.96 * error];
    return [signed(mean, points, low <= 0 && high >= 0), h("span", { class: "note" }, ` (${saySigned(low, points)} to ${saySigned(high, points)})`)];
  }

  const BINS = Array.from({ length: 2 * PARTS + 1 }, (_, at) => {
    const to = (at - PARTS) * (100 / PARTS);
    if (!to) return "no change";
    const from = to - Math.sign(to) * (100 / PARTS);
    const say = (value) => (value > 0 ? `+${value}` : value < 0 ? `−${-value}` : "0");
    return to > 0 ? `${say(from)} to ${say(to)}` : `${say(to)} to ${say(from)}`;
  });

  const LOOKS = [["all", null], ["better", "better"], ["worse", "worse"], ["the same", "same"], ["only in A", "only_a"], ["only in B", "only_b"]];
  const COLUMNS = [["problem", "problem", null], ["step", "step", format.int], ["a_acc", "A", format.percent, "Acc"], ["b_acc", "B", format.percent, "Acc"], ["acc", "change", "points", "Acc"],
    ["a_ncr", "A", format.percent, "NCR"], ["b_ncr", "B", format.percent, "NCR"], ["ncr", "change", "points", "NCR"],
    ["a_reward", "A", format.number, "reward"], ["b_reward", "B", format.number, "reward"], ["reward", "change", "plain", "reward"], ["a_samples", "A", format.int, "samples"], ["b_samples", "B", format.int, "samples"]];
  const sayIn = (row, id, how) => (typeof how === "function" ? how(row[id]) : signed(row[id], how === "points"));

  /** Pairs that were listed last: from one of them, one goes on to the next. */
  let listed = { hashes: [], back: null };
  const pairLink = (row, where) => link(["pair"], { problem: row.problem, ...where, ...(known(row.step) ? { a_step: row.step, b_step: row.step } : {}) });

  const ALONE = "There is one run here, without steps and of one model. Give another one to compare it with: consensuspr watch RUN RUN";

  app.views.compare = async function compare({ chosen, state, get, go }) {
    if (!app.comparable(state)) return { title: "Compare", element: [h("h1", {}, "Compare"), h("p", { class: "empty" }, ALONE)] };
    const where = sidesOf(chosen, state);
    const limit = Number(chosen.limit) || PAGE;
    const offset = Number(chosen.offset) || 0;
    const page = await get(`compare?${app.query({ ...only(["by", "change", "sort", "desc", "q"], chosen), ...where, limit, offset })}`);
    const change = (next) => go(["compare"], { ...chosen, ...where, offset: null, ...next });
    const { counts, differences, sides } = page;
    const both = counts.better + counts.worse + counts.same;
    const [sort, up] = [chosen.sort || "acc", String(chosen.desc) === "0"];
    const rewarded = known(sides.a.reward) || known(sides.b.reward);
    const columns = COLUMNS.filter(([id, , , over]) => (id === "step" ? chosen.by === "step" : over !== "reward" || rewarded));
    const subject = chosen.by === "step" ? "prompt" : "problem";
    const nodesDiffer = JSON.stringify(sides.a.datasets) !== JSON.stringify(sides.b.datasets);
    listed = { hashes: page.rows.map((row) => pairLink(row, where)), back: link(["compare"], { ...chosen, ...where }) };
    return {
      title: "Compare",
      element: [
        h("h1", {}, "Compare"),
        h("form", { class: "sides", onsubmit: (event) => event.preventDefault(), "aria-label": "Sides" },
          SIDES.map((side) => sideForm(where, side, state, change)),
          h("fieldset", { class: "filters side-form asks" }, h("legend", {}, "both"),
            app.choice("source", "source", app.namesOf(state, "sources"), chosen.source, { onchange: (value) => change({ source: value }) }),
            app.choice("split", "split", app.namesOf(state, "splits"), chosen.split, { onchange: (value) => change({ split: value }) }),
            state.runs.some((run) => run.steps) ? app.choice("by", "by", [["step", "problem and step"]], chosen.by, { all: "problem", always: true, onchange: (value) => change({ by: value }) }) : null)),
        sideTable(where, page, state),
        nodesDiffer && both ? h("p", { class: "warned" }, "The two sides were scored with different datasets: their NCR and rewards are not over the same nodes.") : null,
        h("section", { "aria-labelledby": "what-changed" }, h("h2", { id: "what-changed" }, "What changed from A to B"),
          h("p", { class: "about" }, both ? `Over the ${format.count(both, subject)} that both sides have, each counting once; Acc and NCR in points of a hundred. In brackets: where the mean change of problems like these lies, with 95 % confidence; where that goes from below to above none, it may be chance.`
            : `No ${subject} is on both sides.`),
          both ? app.facts([["Acc", interval(differences.acc, true)], ["NCR", interval(differences.ncr, true)], ["reward", rewarded ? interval(differences.reward, false) : null]]) : null,
          both ? h("div", { class: "charts" }, app.chart({
            kind: "bars", name: "changes", title: `${chosen.by === "step" ? "Prompts" : "Problems"} by change of Acc`, about: "in points; left of no change are those that got worse",
            x: { title: "change of Acc" }, y: { title: "", format: INT, fromZero: true }, bins: BINS, series: [{ name: `${subject}s`, look: 0, x: [], y: page.parts }],
          })) : null),
        h("section", { "aria-labelledby": "which" }, h("h2", { id: "which" }, `Which ${subject}s`),
          h("ul", { class: "looks" }, LOOKS.map(([words, name]) => h("li", {}, h("a", {
            href: link(["compare"], { ...chosen, ...where, offset: null, change: name, ...(name === "worse" ? { sort: "acc", desc: 0 } : name === "better" ? { sort: "acc", desc: null } : app.source.kept ? { sort: null, desc: null } : {}) }),
            "aria-current": (chosen.change || null) === name ? "true" : null,
          }, words, name ? h("b", {}, ` ${format.int(counts[name])}`) : null)))),
          h("form", { class: "filters", onsubmit: (event) => event.preventDefault(), role: "search", "aria-label": "Which problems" },
            h("label", { class: "field wide asks" }, h("span", {}, "problem"), h("input", { id: "search", type: "search", value: chosen.q || "", placeholder: "part of its id", autocomplete: "off", "aria-keyshortcuts": "/", onchange: (event) => change({ q: event.target.value.trim() || null }) }))),
          h("div", { class: "bar" }, app.pager("no problem matches", page.total, offset, limit, page.rows.length, (to) => change({ offset: to }))),
          page.rows.length ? app.rowTable({
            label: `${subject}s of both sides`, rows: page.rows, sort, up, onsort: (id, rising) => change({ sort: id, desc: rising ? 0 : null }), href: (row) => pairLink(row, where),
            columns: columns.map(([id, title, how, over]) => ({ id, title, over, numeric: id !== "problem", lead: id === "problem", cell: (row) => (id === "problem" ? app.clip(row.problem) : sayIn(row, id, how)) })),
          }) : null),
      ],
    };
  };

  const mean = (rows, name) => {
    const values = rows.map((row) => row[name]).filter(known);
    return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null;
  };
  const reached = (rows, number) => {
    const scored = rows.filter((row) => row.channels);
    return scored.length ? scored.filter((row) => number < row.channels.length && row.channels[number] !== "-").length / scored.length : null;
  };

  /** Return the first samples that show the change: one side wrong, the other right. */
  function telling(rows) {
    const [a, b] = SIDES.map((side) => mean(rows[side], "acc"));
    if (!known(a) || !known(b) || a === b) return { a: rows.a[0], b: rows.b[0] };
    const pick = (side, acc) => rows[side].find((row) => row.acc === acc) || rows[side][0];
    return b > a ? { a: pick("a", 0), b: pick("b", 1) } : { a: pick("a", 1), b: pick("b", 0) };
  }

  app.views.pair = async function pair({ chosen, state, get, go }) {
    const where = sidesOf(chosen, state);
    const id = chosen.problem;
    if (!id) throw new app.SourceError("Name the problem: ?problem=ID", 404);
    const [lists, problems] = await Promise.all([
      Promise.all(SIDES.map((side) => get(`samples?${app.query({ ...samplesOf(where, side), problem: id, limit: MOST })}`))),
      Promise.all(SIDES.map((side) => get(`problem/${encodeURIComponent(where[side])}/${encodeURIComponent(id)}`).catch((error) => {
        if (error.status === 404) return null;
        throw error;
      }))),
    ]);
    const rows = { a: lists[0].rows, b: lists[1].rows };
    if (!rows.a.length && !rows.b.length) throw new app.SourceError(`Neither side has a sample of problem ${JSON.stringify(id)}.`, 404);
    const first = telling(rows);
    const names = ["left", "right"];
    const picked = Object.fromEntries(SIDES.map((side, at) => [side, rows[side].find((row) => row.key === chosen[names[at]]) || first[side] || null]));
    const wholes = Object.fromEntries(await Promise.all(SIDES.map(async (side) => [side, picked[side] && await get(`sample/${picked[side].run}/${picked[side].key}`)])));
    const described = problems.filter((one) => one);
    const saying = ({ nodes }) => JSON.stringify(nodes.map((node) => [node.id, node.label, node.expressions]));
    const same = described.length < 2 || saying(described[0]) === saying(described[1]);
    const about = (described[0] || Object.values(wholes).find((one) => one)).problem;
    const box = app.problemBox(about);
    const mode = app.modeSwitch();
    const body = h("tbody");
    const texts = Object.fromEntries(SIDES.map((side) => [side, h("div", { class: "pair-text" })]));
    const redraw = () => {
      box.redraw();
      body.replaceChildren(...(same && described.length ? described[0].nodes : []).map((node) => {
        const [a, b] = SIDES.map((side) => reached(rows[side], node.number));
        return h("tr", {}, h("td", { class: "figure" }, String(node.number + 1)), h("td", { class: "says" }, app.prose(node.label || node.id || `node ${node.number + 1}`), app.nodeBadges(node)),
          h("td", { class: "figure" }, app.share(a)), h("td", { class: "figure" }, app.share(b)), h("td", { class: "figure" }, signed(known(a) && known(b) ? b - a : null, true)));
      }));
      for (const side of SIDES) {
        const whole = wholes[side];
        texts[side].replaceChildren(whole === null ? h("p", { class: "empty" }, "This side has no sample of it.")
          : whole.text === null ? h("p", { class: "empty" }, whole.text_why) : app.marked(whole.text, whole.nodes, { rendered: app.rendered() }));
      }
      mode.setAttribute("aria-pressed", String(!app.rendered()));
    };
    redraw();
    const put = (side, key) => go(["pair"], { ...chosen, ...where, [names[SIDES.indexOf(side)]]: key });
    const column = (side) => {
      const row = picked[side];
      const at = rows[side].indexOf(row);
      const turn = (to, words, sign) => h("button", { type: "button", disabled: !rows[side][to], "aria-label": `${words} sample of ${side.toUpperCase()}`, onclick: () => put(side, rows[side][to].key) }, sign);
      const sayRow = (one, number) => `${one.acc === 1 ? "✓" : one.acc === 0 ? "✗" : "?"} ${known(one.step) ? `step ${one.step}, ` : ""}reward ${format.number(one.score)}${one.rollout_id ? `, ${one.rollout_id}` : `, no. ${number + 1}`}`;
      return h("article", { class: "card pair-side", "aria-label": `side ${side.toUpperCase()}` },
        h("h3", {}, tag(side), ` ${nameOf(where, side, state)}`),
        h("p", { class: "about" }, `${format.count(rows[side].length, "sample")}: Acc ${format.percent(mean(rows[side], "acc"))}, NCR ${format.percent(mean(rows[side], "ncr"))}, reward ${format.number(mean(rows[side], "score"))}`,
          lists[SIDES.indexOf(side)].total > MOST ? `; of the newest ${MOST}` : ""),
        row ? h("div", { class: "bar" },
          h("label", { class: "field" }, h("span", {}, "sample"), h("select", { name: names[SIDES.indexOf(side)], onchange: (event) => put(side, event.target.value) },
            rows[side].map((one, number) => h("option", { value: one.key, selected: one === row }, sayRow(one, number))))),
          h("span", { class: "pager" }, turn(at - 1, "previous", "‹"), turn(at + 1, "next", "›"))) : null,
        row ? h("p", {}, app.verdict(row), ` reward ${format.number(row.score)}, NCR ${format.percent(row.ncr)}, nodes ${app.nodesOf(row)} `, h("a", { href: app.sampleLink(row) }, "why"), " · ", h("a", { href: app.groupLink(row) }, "its group")) : null,
        texts[side]);
    };
    const place = listed.hashes.indexOf(pairLink({ problem: id, step: null }, where));
    const step = (to, words, sign, key) => (to ? h("a", { href: to, "aria-label": words, title: `${words} (${key})` }, sign) : h("span", { class: "off" }, sign));
    const [previous, next] = place < 0 ? [null, null] : [listed.hashes[place - 1], listed.hashes[place + 1]];
    return {
      title: `${id}, side by side`, redraw, previous, next,
      element: [
        h("div", { class: "bar" }, app.crumbs(["compare", place < 0 ? link(["compare"], where) : listed.back], [id]),
          place < 0 ? null : h("span", { class: "pager" }, step(previous, "previous pair", "‹", "k"), step(next, "next pair", "›", "j"))),
        h("h1", {}, id), box,
        !same ? h("p", { class: "warned" }, "The two sides were scored with different nodes: their NCR does not compare.") : null,
        same && described.length && described[0].nodes.length ? h("section", {}, h("h2", {}, "Nodes"), h("p", { class: "about" }, "Share of each side's samples that reach them."),
          app.scroll("nodes", h("table", { class: "node-table" }, h("caption", { class: "unseen" }, "Nodes by side"),
            h("thead", {}, h("tr", {}, h("th", { scope: "col", class: "figure at-no" }, "no."), h("th", { scope: "col" }, "node"), ["A", "B", "change"].map((title) => h("th", { scope: "col", class: "figure at-byright" }, title)))), body))) : null,
        h("section", {}, h("div", { class: "bar" }, h("h2", {}, "Side by side"), mode), h("div", { class: "beside pair" }, SIDES.map(column))),
      ],
    };
  };
})((window.consensuspr = window.consensuspr || {}));
