/* One sample with the reasons of its reward, and all samples of its group beside one another. */
"use strict";

const BESIDE = 6; // texts that are shown at once
const MAX_WORDINGS = 40;
const CHANNEL_OF = { p: "pattern", s: "statement", c: "code", e: "equation" };
const CHANNELS = {
  pattern: "found as written", statement: "found as arithmetic with the same numbers",
  code: "found as a value in code", equation: "found as an equal equation",
};

const nodeName = (node) => node.label || node.id || `node ${node.number + 1}`;
const nodeBadges = (node) => [node.is_final ? h("span.badge", "final answer") : null,
  node.counts === false ? h("span.badge", "does not count") : null,
];

/** Return wordings as a list, behind a summary if there is one. */
function wordings(expressions, summary) {
  const hidden = expressions.length - MAX_WORDINGS;
  const list = h("ul.wordings", 
    expressions.slice(0, MAX_WORDINGS).map((text) => h("li", wording(text))),
    hidden > 0 ? h("li", `and ${hidden} more`) : null);
  return summary ? h("details", h("summary", summary), list) : list;
}

/** Return the switch between set mathematics and its source. */
const modeSwitch = () => h("button.quiet.mode", {
  type: "button", name: "mode", "aria-pressed": String(!isRendered()),
  "aria-keyshortcuts": "m", onclick: () => switchMode(),
}, "source", h("kbd", { "aria-hidden": "true" }, "m"));

const problemBox = (problem) => h("details.problem", { open: true }, h("summary", "Problem"),
  problem.text ? prose(problem.text)
    : hint("The problem's text is unknown. Pass its dataset with --dataset."),
  known(problem.ground_truth)
    ? h("p.truth", "right answer: ", wording(problem.ground_truth)) : null);

/** Return the text of a sample with its hits, or why there is none. */
function textOf(sample, handlers) {
  if (sample.text !== null && sample.characters) return marked(sample.text, sample.nodes, handlers);
  return h("p.empty", sample.text_why || "The response is empty.");
}

function nodeItem(node, onshow) {
  const { matched, channel, number } = node;
  const unmatched = node.expressions.filter((text) => text !== node.expression);
  const words = matched ? format.count(unmatched.length, "other expression")
    : `none of ${format.count(unmatched.length, "expression")} found`;
  return h("li", { class: matched ? "node" : "node missed", id: `node-${number + 1}` },
    matched ? h("button", {
      type: "button", class: `number ${channel}`, onclick: () => onshow(number),
      "aria-label": `show node ${number + 1} in the text`,
    }, String(number + 1)) : h("span.number.missed", String(number + 1)),
    h("div", h("div.label", h("span", {
        class: matched ? "yes" : "no", role: "img", "aria-label": matched ? "reached" : "not reached",
      }, matched ? "✓ " : "✗ "), nodeLabel(node), nodeBadges(node)),
      matched ? h("p", h("span", { class: `channel ${channel}` }, channel), " ",
        node.expression ? wording(node.expression) : null) : null,
      node.words && channel !== "pattern"
        ? h("div.about", `${CHANNELS[channel]}: `, wording(node.words)) : null,
      unmatched.length ? wordings(unmatched, words) : null));
}

/** Return the reward as a sum of terms. */
function arithmetic({ formula, terms, sample: row }) {
  const say = format.short;
  const factor = ({ name, value, adds }) => {
    if (value === null || adds === null) return value === null ? "unknown" : say(value);
    if (name === "penalty") return "by the trainer";
    return value ? `${say(adds / value)} × ${say(value)}` : `× ${say(value)}`;
  };
  const line = (look) => ([title, words, value]) => h("tr", { class: look },
    h("th", { scope: "row" }, title), h("td", words),
    h("td.figure", value === null ? "–" : say(value)));
  const of = (names) => terms.filter(({ name }) => names.includes(name))
    .map((term) => [term.name === "penalty" ? "penalty" : term.name === "acc" ? "Acc" : "NCR", factor(term), term.adds]);
  const trained = known(row.score) && known(row.reward) && row.score !== row.reward;
  return h("table.arithmetic", formula ? h("caption", h("code", formula)) : terms.length ? h("caption", "The file does not name the formula.") : null,
    h("tbody", of(["acc", "ncr"]).map(line()), line("sum")(["reward", "", row.reward]),
      of(["penalty"]).map(line()), trained ? line("sum")(["trained on", "", row.score]) : null));
}

function ncrLines(row, figures) {
  const { ncr, ncr_raw: raw, guard } = row;
  const { int, short, count } = format;
  if (!known(ncr)) {
    return hint(row.status === "NO_NODES" ? "The problem has no nodes, so there is no NCR." : "There is no NCR.");
  }
  const lowered = known(guard) && guard < 1;
  const counted = `${int(row.num_matched)} of ${count(row.num_nodes, "node")}`;
  const product = lowered ? `${short(raw)} (${counted}) × ${short(guard)} (guard)` : counted;
  const lines = [h("p", h("b", "NCR "), ncr === 0 && raw > 0
    ? `0 (${counted}, without a marked final answer)` : `${short(ncr)} = ${product}`)];
  if (figures) {
    const { statements, max_statements: stated, numbers, max_numbers: written } = figures;
    const { equations, max_equations: equated } = figures;
    const factors = [[stated, statements], [written, numbers], [equated, equations]].filter(([most, has]) => has > most)
      .map(([most, has]) => `${short(most)} ∕ ${int(has)}`);
    lines.push(h("p", { class: lowered ? "warned" : "about" }, h("b", "Guard "),
      `${short(guard)}${lowered ? ` = ${factors.join(" × ")}` : ""}: `,
      `${count(statements, "value")} stated of ${short(stated)} allowed, `,
      `${count(numbers, "number")} written of ${short(written)}`,
      equations ? `, ${count(equations, "equation")} of ${short(equated)}.` : "."));
  }
  return lines;
}

function details(words, values) {
  const shown = Object.entries(values).filter(([, value]) => known(value) && value !== "");
  return !shown.length ? null : h("details", h("summary", words),
    pairs(shown.map(([name, value]) => [name.replace(/_/g, " "),
      h("code", typeof value === "object" ? JSON.stringify(value) : String(value))]), "pairs"));
}

function legend(channels) {
  const used = Object.keys(CHANNELS).filter((channel) => channels.includes(channel));
  return used.length ? h("ul.legend", { "aria-label": "How nodes were found" },
    used.map((channel) => h("li", h("span", { class: `channel ${channel}` }, channel), ` ${CHANNELS[channel]}`))) : null;
}

views.sample = async function sample({ parts: [run, key], chosen, state, get, go }) {
  const data = await get(`sample/${encodeURIComponent(run)}/${encodeURIComponent(key)}?${query({ whole: chosen.whole })}`);
  const { sample: row, nodes, problem } = data;
  const point = (element) => {
    element.scrollIntoView({ block: "center" });
    element.classList.add("pointed");
    setTimeout(() => element.classList.remove("pointed"), 1600);
  };
  const body = h("div.text-body", textOf(data, {
    onnode: (node) => point(document.getElementById(`node-${node + 1}`)),
    onskipped: () => go(["sample", run, key], { whole: 1 }),
  }));
  const showHit = (node) => {
    const hit = body.querySelector(`[data-nodes~="${node + 1}"]`);
    if (hit) point(hit);
    tell(hit ? `node ${node + 1}: ${hit.textContent.slice(0, 80)}` : `node ${node + 1} is in a part that is not shown`);
  };
  const { previous, next, element: pager } = inList(sampleLink(row), "sample");
  const group = groupLink(row);
  const noNodes = row.status === "NO_NODES" || (!data.explained_why && row.status === "OK")
    ? "The problem has no nodes." : `Unknown: ${data.explained_why || row.message}.`;
  return {
    title: `${row.problem}, step ${format.int(row.step)}`, group, problem: problemLink(row), next, previous,
    element: [h("div.bar", crumbs(runCrumb(state, row.run), stepCrumb(row.run, row.step),
        ["group", group], [titleOf(row)]), pager),
      h("h1", verdict(row), " ", h("span.sub", h("a", { href: problemLink(row) }, row.problem))),
      facts([["reward", format.number(row.score)], ["Acc", known(row.acc) ? format.int(row.acc) : "unknown"],
        ["NCR", format.percent(row.ncr)], ["nodes", nodesOf(row)], ["guard", format.short(row.guard)],
        ["tokens", format.int(row.num_tokens)], ["TPN", format.tpn(row.tpn)],
        ["model", row.model], ["split", row.split], ["source", row.source]]),
      row.flags.length ? h("p", remarks(row)) : null,
      row.message ? warning(`${row.status}: ${row.message}`) : null,
      data.differs ? warning(data.differs) : null,
      problemBox(problem),
      h("div.columns", h("section", { "aria-labelledby": "written" },
          h("div.bar", h("h2", { id: "written" }, "Response"), modeSwitch()),
          data.text && !data.explained ? hint(`Nodes are not marked: ${data.explained_why}.`) : null,
          legend(nodes.filter((node) => node.matched).map((node) => node.channel)), body),
        h("aside.why", { "aria-label": "Reward" },
          h("section", h("h2", "Reward"), arithmetic(data), ncrLines(row, data.guard)),
          h("section", h("h2", "Answer"), h("p", known(data.answer.found) ? ["The answer is ", wording(data.answer.found), ". "] : "The text has no answer. ",
              known(data.answer.truth) ? ["The ground truth is ", wording(data.answer.truth), ". "] : null, data.answer.why),
            row.answer_method ? hint(`Decided by: ${row.answer_method}`) : null),
          h("section", h("h2", "Nodes"), nodes.length
            ? h("ol.nodes", nodes.map((node) => nodeItem(node, showHit))) : hint(noNodes)),
          h("section", h("a", { href: group }, "its group, side by side", h("kbd", { "aria-hidden": "true" }, "g"))),
          h("section", details("versions and settings", data.identity), details("other columns", data.other)))),
    ],
  };
};

/** Return the samples of a group, and which nodes each reaches. */
function matrix({ rows, nodes, reward }) {
  const far = (row) => (known(reward.mean) && known(row.score) ? row.score - reward.mean : 0);
  const widest = Math.max(1e-9, ...rows.map((row) => Math.abs(far(row))));
  const channel = (row, node) => CHANNEL_OF[(row.channels || "")[node.number]];
  const ofNode = (node) => ({
    title: [String(node.number + 1), node.is_final ? h("span", { title: "final answer" }, "★") : null],
    about: nodeName(node), width: "node-head",
    look: (row) => ({
      class: `cell ${channel(row, node) || ""}`, title: `${nodeName(node)}: ${channel(row, node) || "not reached"}`,
    }),
    cell: (row) => h("span", { role: "img", "aria-label": channel(row, node) || "not reached" },
      channel(row, node) ? channel(row, node)[0].toUpperCase() : "·"),
  });
  const spread = (row) => h("span", {
    class: `spread ${far(row) > 0 ? "above" : "below"}`, vars: { share: Math.abs(far(row)) / widest },
  }, known(row.score) ? signed(far(row), { plain: true }) : format.NONE);
  return table({
    label: "Samples of the group, and the nodes that they reach", look: "rows matrix", frame: "matrix-scroll",
    rows, href: sampleLink, data: (row) => ({ "data-problem": problemLink(row) }),
    columns: [{ title: "sample", lead: true, cell: (row, at) => clip(titleOf(row, at)) },
      { title: "verdict", cell: verdict },
      { title: "reward", numeric: true, cell: (row) => format.number(row.score) },
      ...nodes.map(ofNode),
      { title: "minus mean", numeric: true, cell: spread },
      { title: "NCR", numeric: true, cell: (row) => share(row.ncr) },
      { title: "tokens", numeric: true, cell: (row) => format.int(row.num_tokens) },
    ],
    foot: h("tfoot", h("tr", h("th", { scope: "row", colspan: "3" }, "reached by"),
      nodes.map((node) => h("td.cell", String(rows.filter((row) => channel(row, node)).length))),
      h("td", { colspan: "3" }))),
  });
}

views.group = async function group({ parts: [run], chosen, state, get }) {
  const data = await get(`group/${encodeURIComponent(run)}?${query(chosen)}`);
  const { rows, problem, nodes, reward } = data;
  lastList = { hashes: rows.map(sampleLink), back: location.hash };
  const grid = h("div.beside");
  const card = async (row, at) => {
    const title = titleOf(row, at);
    const text = h("div.card-text", { tabindex: "0", role: "region", "aria-label": `text of ${title}` }, "…");
    grid.append(h("article.card", { "aria-label": title },
      h("h3", h("a", { href: sampleLink(row) }, title)),
      hint(verdict(row), ` reward ${format.number(row.score)}, NCR ${format.percent(row.ncr)}`), text));
    put(text, textOf(await get(`sample/${row.run}/${row.key}`)));
  };
  let shown = 0;
  const moreButton = h("button", { type: "button", onclick: () => showMore() });
  const showMore = async () => {
    const first = shown;
    const next = rows.slice(first, first + BESIDE);
    shown += next.length;
    moreButton.hidden = shown >= rows.length;
    moreButton.textContent = `show the next ${Math.min(BESIDE, rows.length - shown)} of ${rows.length}`;
    await Promise.all(next.map((row, at) => card(row, first + at)));
  };
  await showMore();
  const labels = h("ol.node-legend", nodes.map((node) => h("li", nodeLabel(node), " ",
    nodeBadges(node), node.expressions.length ? wording(node.expressions[0]) : null)));
  const levels = reward.distinct === 1 ? "all the same" : format.count(reward.distinct, "different value");
  const { number } = format;
  return {
    title: `Group, step ${format.int(data.step)}`, problem: problemLink(rows[0]),
    element: [crumbs(runCrumb(state, run), stepCrumb(run, data.step),
        [problem.id, link(["problem", run, problem.id])], ["group"]),
      h("h1", `${format.count(data.total, "sample")} of one prompt`),
      facts([["mean reward", number(reward.mean)], ["standard deviation", number(reward.std)],
        ["lowest", number(reward.lowest)], ["highest", number(reward.highest)], ["rewards", levels],
        ["right", format.int(rows.filter((row) => row.acc === 1).length)]]),
      reward.no_gradient ? warning("All rewards are equal. A trainer that compares the samples of a group gets no gradient.") : null,
      problemBox(problem),
      h("section", h("h2", "Nodes reached"),
        legend(rows.flatMap((row) => [...(row.channels || "")].map((letter) => CHANNEL_OF[letter]))), matrix(data),
        data.datasets > 1 ? hint(`The samples were scored with ${data.datasets} datasets, which have different nodes.`) : null,
        nodes.length ? h("details", { open: nodes.length <= 6 }, h("summary", "labels of the nodes"), labels) : null),
      h("section", h("div.bar", h("h2", "Side by side"), modeSwitch()), grid, moreButton),
    ],
  };
};
