/* One sample with the reasons of its reward, and all samples of its group beside one another. */
(function (app) {
  "use strict";

  const { h, format, link, known } = app;
  const BESIDE = 6; // texts that are shown at once
  const MAX_WORDINGS = 40;
  const CHANNEL_OF = { p: "pattern", s: "statement", c: "code" };
  const CHANNELS = { pattern: "found as written", statement: "found as an equation of the same meaning", code: "found as a value in code" };
  // How an answer was compared (docs/answers.md).
  const METHODS = {
    canonical: "the same string once notation is unified", rational: "exact values", numeric: "values of closed forms", algebraic: "exact expressions",
    text: "words", elements: "element by element", symbolic: "computer algebra", dapo: "the string rule of verl, by its answer line", "dapo-boxed": "the string rule of verl, by its box",
  };

  const nameOf = (node) => node.label || node.id || `node ${node.number + 1}`;

  app.nodeBadges = (node) => [
    node.is_final ? h("span", { class: "badge" }, "final answer") : null,
    node.counts === false ? h("span", { class: "badge" }, "does not count") : null,
  ];

  app.wordings = function wordings(expressions, summary) {
    const list = h("ul", { class: "wordings" }, expressions.slice(0, MAX_WORDINGS).map((one) => h("li", {}, app.wording(one))),
      expressions.length > MAX_WORDINGS ? h("li", {}, `and ${expressions.length - MAX_WORDINGS} more`) : null);
    return summary === null ? list : h("details", {}, h("summary", {}, summary || format.count(expressions.length, "wording")), list);
  };

  function nodeItem(node, onshow) {
    const { matched, channel, number } = node;
    const wordings = node.expressions.filter((one) => one !== node.expression);
    return h("li", { class: matched ? "node hit" : "node missed", id: `node-${number + 1}` },
      matched
        ? h("button", { type: "button", class: `number ${channel}`, onclick: () => onshow(number), "aria-label": `show node ${number + 1} in the text` }, String(number + 1))
        : h("span", { class: "number missed" }, String(number + 1)),
      h("div", {},
        h("div", { class: "label" }, h("span", { class: matched ? "yes" : "no", role: "img", "aria-label": matched ? "reached" : "not reached" }, matched ? "✓ " : "✗ "), app.prose(nameOf(node)), app.nodeBadges(node)),
        matched ? h("p", { class: "found" }, h("span", { class: `channel ${channel}` }, channel), " ", node.expression ? app.wording(node.expression) : null) : null,
        !wordings.length ? null
          : matched ? app.wordings(wordings, format.count(wordings.length, "other wording"))
          : wordings.length > 4 ? app.wordings(wordings, `looked for in ${format.count(wordings.length, "wording")}`)
          : h("div", { class: "wanted" }, h("span", {}, "looked for: "), app.wordings(wordings, null))));
  }

  const WORDS = { acc: "Acc", ncr: "NCR", penalty: "penalty" };

  function termsTable(reward) {
    const say = format.short;
    const factor = (term) => {
      if (term.value === null) return "unknown";
      return term.name === "penalty" ? "by the trainer" : term.value ? `${say(term.adds / term.value)} × ${say(term.value)}` : `× ${say(term.value)}`;
    };
    const rows = reward.terms.filter((term) => term.name !== "penalty" || term.adds);
    const trained = known(reward.score) && known(reward.reward) && reward.score !== reward.reward;
    const sums = rows.filter((term) => term.name !== "penalty");
    const line = (term) => h("tr", {}, h("th", { scope: "row" }, WORDS[term.name] || term.name), h("td", {}, factor(term)), h("td", { class: "figure" }, say(term.adds)));
    const sum = (words, value) => h("tr", { class: "sum" }, h("th", { scope: "row" }, words), h("td", {}), h("td", { class: "figure" }, value === null ? "none" : say(value)));
    return h("table", { class: "arithmetic" }, reward.formula ? h("caption", {}, h("code", {}, reward.formula)) : null,
      h("tbody", {}, sums.map(line), sum("reward", reward.reward), rows.filter((term) => term.name === "penalty").map(line), trained ? sum("trained on", reward.score) : null));
  }

  /** Return one factor of the guard: nothing where it is 1. */
  const overspent = (most, has) => (has > most ? [`${format.short(most)} ∕ ${format.int(has)}`] : []);

  function ncrLines({ ncr, ncr_raw: raw, guard, num_matched: matched, num_nodes: nodes, guard_figures: figures }, status) {
    if (!known(ncr)) return h("p", { class: "about" }, status === "NO_NODES" ? "The problem has no nodes, so there is no NCR." : "There is no NCR.");
    const lowered = known(guard) && guard < 1;
    const counted = `${format.int(matched)} of ${format.count(nodes, "node")}`;
    return [
      h("p", {}, h("b", {}, "NCR "), ncr === 0 && raw > 0 ? `0 (${counted}, without a marked final answer)`
        : `${format.short(ncr)} = ${lowered ? `${format.short(raw)} (${counted}) × ${format.short(guard)} (guard)` : counted}`),
      figures ? h("p", { class: lowered ? "warned" : "about" }, h("b", {}, "Guard "),
        `${format.short(guard)}${lowered ? ` = ${[...overspent(figures.max_statements, figures.statements), ...overspent(figures.max_numbers, figures.numbers)].join(" × ")}` : ""}: `,
        `${format.count(figures.statements, "value")} stated of ${format.short(figures.max_statements)} allowed, ${format.count(figures.numbers, "number")} written of ${format.short(figures.max_numbers)}.`) : null,
    ];
  }

  function pairs(values) {
    return h("dl", { class: "pairs" }, Object.entries(values).filter(([, value]) => known(value) && value !== "").map(([name, value]) => [
      h("dt", {}, name.replace(/_/g, " ")), h("dd", {}, h("code", {}, typeof value === "object" ? JSON.stringify(value) : String(value)))]));
  }

  app.modeSwitch = function modeSwitch() {
    return h("button", { type: "button", class: "mode quiet", "aria-keyshortcuts": "m", "aria-pressed": String(!app.rendered()), onclick: () => app.switchMode() }, "source", h("kbd", { "aria-hidden": "true" }, "m"));
  };

  function legend(channels) {
    const used = Object.keys(CHANNELS).filter((channel) => channels.includes(channel));
    return used.length ? h("ul", { class: "legend", "aria-label": "How nodes were found" }, used.map((channel) => h("li", {}, h("span", { class: `channel ${channel}` }, channel), ` ${CHANNELS[channel]}`))) : null;
  }

  app.problemBox = function problemBox(problem) {
    const body = h("div", { class: "problem-text" });
    const truth = h("span", { class: "truth" });
    const box = h("details", { class: "problem", open: true }, h("summary", {}, "Problem"), body, truth);
    box.redraw = () => {
      body.replaceChildren(problem.text ? app.prose(problem.text) : h("p", { class: "about" }, "Its text is not known here. Pass its dataset with --dataset."));
      truth.replaceChildren(...(known(problem.ground_truth) ? ["right answer: ", app.wording(problem.ground_truth)] : []));
    };
    box.redraw();
    return box;
  };

  app.facts = (facts) => h("ul", { class: "facts" }, facts.filter((fact) => fact && known(fact[1])).map(([name, value]) => h("li", {}, h("span", {}, name), h("b", {}, value))));

  app.views.sample = async function sample({ parts: [run, key], chosen, state, get, go }) {
    const data = await get(`sample/${encodeURIComponent(run)}/${encodeURIComponent(key)}?${app.query({ whole: chosen.whole })}`);
    const { sample: row, nodes, problem, neighbours } = data;
    const body = h("div", { class: "text-body" });
    const list = h("ol", { class: "nodes" });
    const mode = app.modeSwitch();
    const point = (element) => {
      element.scrollIntoView({ block: "center", behavior: "auto" });
      element.classList.add("pointed");
      setTimeout(() => element.classList.remove("pointed"), 1600);
    };
    const showHit = (node) => {
      const hit = body.querySelector(`[data-nodes~="${node + 1}"]`);
      if (hit) point(hit);
      app.tell(hit ? `node ${node + 1}: ${hit.textContent.slice(0, 80)}` : `node ${node + 1} is in a part that is not shown`);
    };
    const box = app.problemBox(problem);
    const draw = () => {
      body.replaceChildren(data.text === null || !data.characters ? h("p", { class: "empty" }, data.text_why || "The response is empty.")
        : app.marked(data.text, nodes, { rendered: app.rendered(), onnode: (node) => point(document.getElementById(`node-${node + 1}`)), onskipped: () => go(["sample", run, key], { whole: 1 }) }));
      list.replaceChildren(...nodes.map((node) => nodeItem(node, showHit)));
      box.redraw();
      mode.setAttribute("aria-pressed", String(!app.rendered()));
    };
    draw();
    const { hashes, back } = app.lastList;
    const at = hashes.indexOf(app.sampleLink(row));
    const [previous, next] = at < 0 ? [null, null] : [hashes[at - 1], hashes[at + 1]];
    const step = (to, words, sign, name) => (to ? h("a", { href: to, "aria-label": words, title: `${words} (${name})` }, sign) : h("span", { class: "off" }, sign));
    const group = app.groupLink(row);
    const near = h("ol", { class: "neighbours" }, neighbours.map((one) => h("li", {}, h("a", { href: app.sampleLink({ run: row.run, key: one.key }), "aria-current": one.key === row.key ? "true" : null }, app.verdict(one), app.share(one.score, format.number(one.score))))));
    return {
      title: `${row.problem}, step ${format.int(row.step)}`,
      group, problem: app.problemLink(row), next, previous, redraw: draw,
      onshown() { // of a long list, the part where this one stands
        const own = near.querySelector("[aria-current]");
        if (own) near.scrollTop = own.parentElement.offsetTop - near.offsetTop - near.clientHeight / 2;
      },
      element: [
        h("div", { class: "bar" },
          app.crumbs([app.runName(state, row.run), link(["overview"], { run: state.runs.length > 1 ? row.run : null })],
            known(row.step) ? [`step ${format.int(row.step)}`, app.source.kept ? null : link(["samples"], { run: row.run, step: row.step })] : null,
            ["group", group], [app.titleOf(row)]),
          at < 0 ? null : h("span", { class: "pager" }, h("a", { href: back }, "list"), step(previous, "previous sample", "‹", "k"), step(next, "next sample", "›", "j"))),
        h("h1", {}, app.verdict(row), h("span", { class: "sub" }, "  ", h("a", { href: app.problemLink(row) }, row.problem))),
        app.facts([["reward", format.number(row.score)], ["Acc", known(row.acc) ? format.int(row.acc) : "unknown"], ["NCR", format.percent(row.ncr)],
          ["nodes", app.nodesOf(row)], ["guard", format.short(row.guard)], ["tokens", format.int(row.num_tokens)], ["TPN", format.tpn(row.tpn)],
          ["model", row.model], ["split", row.split], ["source", row.source]]),
        row.flags.length ? h("p", { class: "remarks" }, app.remarks(row)) : null,
        row.message ? h("p", { class: "warned" }, `${row.status}: ${row.message}`) : null,
        data.differs ? h("p", { class: "warned" }, data.differs) : null,
        box,
        h("div", { class: "columns" },
          h("section", { class: "text", "aria-labelledby": "written" },
            h("div", { class: "bar" }, h("h2", { id: "written" }, "Response"), mode),
            data.text && !data.explained ? h("p", { class: "about" }, `Hits are not marked: ${data.explained_why}.`) : null,
            legend(nodes.filter((node) => node.matched).map((node) => node.channel)), body),
          h("aside", { class: "why", "aria-label": "Reward" },
            h("section", {}, h("h2", {}, "Reward"), termsTable(data.reward), ncrLines(data.ncr, row.status)),
            h("section", {}, h("h2", {}, "Answer"), h("p", {}, data.answer.sentence),
              METHODS[data.answer.method] ? h("p", { class: "about" }, `compared by: ${METHODS[data.answer.method]}`) : null),
            h("section", {}, h("h2", {}, "Nodes"), nodes.length ? list : h("p", { class: "about" }, row.status === "NO_NODES" || (!data.explained_why && row.status === "OK") ? "The problem has none." : `Not known here: ${data.explained_why || row.message}.`)),
            neighbours.length > 1 ? h("section", {}, h("div", { class: "bar" }, h("h2", {}, "Its group"), h("a", { href: group }, "side by side", h("kbd", { "aria-hidden": "true" }, "g"))),
              near) : null,
            h("details", { class: "identity" }, h("summary", {}, "versions and settings"), pairs(data.identity)),
            Object.keys(data.other).length ? h("details", {}, h("summary", {}, "other columns"), pairs(data.other)) : null)),
      ],
    };
  };

  function matrix({ rows, nodes, reward }) {
    const far = (row) => (known(reward.mean) && known(row.score) ? row.score - reward.mean : null);
    const widest = Math.max(1e-9, ...rows.map((row) => Math.abs(far(row) || 0)));
    const [before, behind] = [[["sample", false], ["verdict", false], ["reward", true]], [["against the mean", true], ["NCR", true], ["tokens", true]]];
    const heads = (some) => some.map(([title, numeric]) => h("th", { scope: "col", class: numeric ? "figure" : null }, title));
    return app.scroll("samples and the nodes that they reach", h("table", { class: "rows matrix" }, h("caption", { class: "unseen" }, "Samples of the group, and the nodes that they reach"),
        h("thead", {}, h("tr", {}, heads(before),
          nodes.map((node) => h("th", { scope: "col", class: "node-head", title: nameOf(node) }, String(node.number + 1), node.is_final ? h("span", { title: "final answer" }, "★") : null)), heads(behind))),
        h("tbody", {}, rows.map((row, index) => {
          const off = far(row);
          const side = off > 1e-9 ? "above" : off < -1e-9 ? "below" : "";
          return h("tr", { "data-href": app.sampleLink(row), "data-problem": app.problemLink(row) },
            h("td", {}, h("a", { class: "row", href: app.sampleLink(row) }, app.clip(app.titleOf(row, index)))), h("td", {}, app.verdict(row)),
            h("td", { class: "figure" }, format.number(row.score)),
            nodes.map((node) => {
              const letter = (row.channels || "")[node.number];
              const channel = CHANNEL_OF[letter];
              return h("td", { class: `cell ${channel || ""}`, title: `${nameOf(node)}: ${channel || "not reached"}` },
                h("span", { role: "img", "aria-label": channel || "not reached" }, channel ? letter.toUpperCase() : "·"));
            }),
            h("td", { class: "figure" }, h("span", { class: `spread ${side}`, vars: { share: Math.abs(off || 0) / widest } }, off === null ? format.NONE : `${off > 1e-9 ? "+" : off < -1e-9 ? "−" : "±"}${format.number(Math.abs(off))}`)),
            h("td", { class: "figure" }, app.share(row.ncr)), h("td", { class: "figure" }, format.int(row.num_tokens)));
        })),
        h("tfoot", {}, h("tr", {}, h("th", { scope: "row", colspan: String(before.length) }, "reached by"), nodes.map((node) => h("td", { class: "cell" }, String(rows.filter((row) => CHANNEL_OF[(row.channels || "")[node.number]]).length))),
          h("td", { colspan: String(behind.length) })))), "matrix-scroll");
  }

  app.views.group = async function group({ parts: [run], chosen, state, get }) {
    const data = await get(`group/${encodeURIComponent(run)}?${app.query(chosen)}`);
    const { rows, problem, nodes, reward } = data;
    app.lastList = { hashes: rows.map(app.sampleLink), back: location.hash };
    const grid = h("div", { class: "beside" });
    const cards = [];
    const card = async (row, at) => {
      const title = app.titleOf(row, at);
      const text = h("div", { class: "card-text", tabindex: "0", role: "region", "aria-label": `text of ${title}` }, "…");
      grid.append(h("article", { class: "card", "aria-label": title }, h("h3", {}, h("a", { href: app.sampleLink(row) }, title)),
        h("p", { class: "about" }, app.verdict(row), ` reward ${format.number(row.score)}, NCR ${format.percent(row.ncr)}`), text));
      const whole = await get(`sample/${row.run}/${row.key}`);
      const draw = () => text.replaceChildren(whole.text === null ? whole.text_why : app.marked(whole.text, whole.nodes, { rendered: app.rendered() }));
      draw();
      cards.push(draw);
    };
    let shown = 0;
    const more = h("button", { type: "button", onclick: () => showMore() });
    const showMore = async () => {
      const first = shown;
      const next = rows.slice(first, first + BESIDE);
      shown += next.length;
      more.hidden = shown >= rows.length;
      more.textContent = `show the next ${Math.min(BESIDE, rows.length - shown)} of ${rows.length}`;
      await Promise.all(next.map((row, at) => card(row, first + at)));
    };
    await showMore();
    const says = h("ol", { class: "node-legend" });
    const box = app.problemBox(problem);
    const mode = app.modeSwitch();
    const redraw = () => {
      cards.forEach((draw) => draw());
      says.replaceChildren(...nodes.map((node) => h("li", {}, app.prose(nameOf(node)), " ", app.nodeBadges(node), node.expressions.length ? app.wording(node.expressions[0]) : null)));
      box.redraw();
      mode.setAttribute("aria-pressed", String(!app.rendered()));
    };
    redraw();
    const levels = reward.distinct === 1 ? "all the same" : format.count(reward.distinct, "different value");
    return {
      title: `Group, step ${format.int(data.step)}`, problem: app.problemLink(rows[0]), redraw,
      element: [
        app.crumbs([app.runName(state, run), link(["overview"], { run: state.runs.length > 1 ? run : null })],
          known(data.step) ? [`step ${format.int(data.step)}`, app.source.kept ? null : link(["samples"], { run, step: data.step })] : null,
          [problem.id, link(["problem", run, problem.id])], ["group"]),
        h("h1", {}, `${format.count(data.total, "sample")} of one prompt`),
        app.facts([["mean reward", format.number(reward.mean)], ["standard deviation", format.number(reward.std)], ["lowest", format.number(reward.lowest)],
          ["highest", format.number(reward.highest)], ["rewards", levels], ["right", format.int(rows.filter((row) => row.acc === 1).length)]]),
        reward.no_gradient ? h("p", { class: "warned" }, "All rewards are equal, so a trainer that compares the samples of a group gets no gradient.") : null,
        box,
        h("section", {}, h("h2", {}, "Nodes reached"), legend(rows.flatMap((row) => [...(row.channels || "")].map((letter) => CHANNEL_OF[letter]))), matrix(data),
          data.datasets > 1 ? h("p", { class: "about" }, `They were scored with ${data.datasets} datasets, whose nodes are not the same.`) : null,
          nodes.length ? h("details", { open: nodes.length <= 6 }, h("summary", {}, "labels of the nodes"), says) : null),
        h("section", {}, h("div", { class: "bar" }, h("h2", {}, "Side by side"), mode), grid, more),
      ],
    };
  };
})((window.consensuspr = window.consensuspr || {}));
