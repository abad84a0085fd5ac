/* Responses: hits of nodes marked in place, Markdown and mathematics set or as their source. */
"use strict";

// Formulas of a text that are longer, or come after so many, stay as they are written.
const LONGEST_FORMULA = 4000;
const MAX_FORMULAS = 2000;
// Formulas may only carry classes that this page gave them: the name changes with every load.
const OURS = `hit-${Math.random().toString(36).slice(2, 10)}`;
const KATEX = {
  throwOnError: true,
  strict: "ignore",
  maxSize: 20,
  maxExpand: 300,
  trust: (context) => context.command === "\\htmlClass" && context.class.startsWith(`${OURS} `),
};

const DELIMITERS = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
];
const ENVIRONMENT = /\\begin\{(equation|align|aligned|gather|alignat|multline|eqnarray)(\*?)\}/y;

/** Return where the brace that opens at `at` closes, or -1. */
function closing(text, at) {
  let depth = 0;
  for (let place = at; place < text.length && place - at < LONGEST_FORMULA; place += 1) {
    if (text[place] === "\\") place += 1;
    else if (text[place] === "{") depth += 1;
    else if (text[place] === "}" && (depth -= 1) === 0) return place;
  }
  return -1;
}

/** Return where something stands next, or -1 where a formula cannot reach that far. */
function next(text, mark, from) {
  const at = text.slice(from, from + LONGEST_FORMULA).indexOf(mark);
  return at < 0 ? -1 : from + at;
}

const CODE = /`[^`\n]{1,200}`/y;
const FENCE = /^ *(```|~~~)/gm;

/** Return the fenced code of a text: `{start, end}`; one that is never closed goes to the end. */
function fences(text) {
  const found = [];
  let open = null;
  for (const { 0: line, 1: sign, index } of text.matchAll(FENCE)) {
    if (open === null) open = { start: index, sign };
    else if (sign === open.sign) {
      found.push({ start: open.start, end: index + line.length });
      open = null;
    }
  }
  return open === null ? found : [...found, { start: open.start, end: text.length }];
}

/** Return the formulas of a text: `{start, end, from, to, display}`, the source being
    `[from, to)`.  A dollar is a delimiter as Pandoc has it: nothing blank inside it, no digit after
    it, no empty line between the two.  Code holds none; it is among them, as `{start, end, code}`. */
function formulas(text) {
  const found = [];
  const fenced = fences(text);
  let at = 0;
  while (at < text.length && found.length < MAX_FORMULAS) {
    if (fenced.length && at >= fenced[0].start) {
      const { start, end } = fenced.shift();
      // A formula that was open before it has taken some of it.
      found.push({ start: Math.max(at, start), end: Math.max(at, end), code: true });
      at = Math.max(at, end);
      continue;
    }
    const sign = text[at];
    CODE.lastIndex = at;
    if (sign !== "$" && sign !== "\\") { at += sign === "`" && CODE.test(text) ? CODE.lastIndex - at : 1; continue; }
    const formula = formulaAt(text, at);
    if (formula) {
      found.push(formula);
      at = formula.end;
    } else at += sign === "\\" ? 2 : 1;
  }
  return found;
}

function formulaAt(text, at) {
  for (const { open, close, display } of DELIMITERS) {
    if (!text.startsWith(open, at)) continue;
    const end = next(text, close, at + open.length);
    if (end <= at + open.length) return null;
    return { start: at, end: end + close.length, from: at + open.length, to: end, display };
  }
  if (text[at] === "$") {
    // Some models put blanks between a dollar and its formula; between amounts of money are words.
    const [spaced, source] = /^\$ +([^$\n]{1,200}?) +\$(?!\d)/.exec(text.slice(at, at + 210)) || [];
    if (spaced && !/(?<![\\a-z])[a-z]{3}/.test(source)) {
      const from = at + spaced.indexOf(source);
      return { start: at, end: at + spaced.length, from, to: from + source.length, display: false };
    }
    if (/\s/.test(text[at + 1] || " ")) return null;
    for (let end = at + 1; end < text.length && end - at < LONGEST_FORMULA; end += 1) {
      if (text[end] === "\\") end += 1;
      else if (text[end] === "\n" && text[end + 1] === "\n") return null;
      else if (text[end] === "$") {
        if (/\s/.test(text[end - 1]) || /\d/.test(text[end + 1] || "")) return null;
        return { start: at, end: end + 1, from: at + 1, to: end, display: false };
      }
    }
    return null;
  }
  if (text.startsWith("\\boxed{", at)) {
    const end = closing(text, at + 6);
    return end < 0 ? null : { start: at, end: end + 1, from: at, to: end + 1, display: false };
  }
  ENVIRONMENT.lastIndex = at;
  const environment = ENVIRONMENT.exec(text);
  if (!environment) return null;
  const close = `\\end{${environment[1]}${environment[2]}}`;
  const end = next(text, close, at);
  if (end < 0) return null;
  return { start: at, end: end + close.length, from: at, to: end + close.length, display: true };
}

/** Return whether what stands between delimiters is words: set as mathematics, they would run together. */
function isWords(formula) {
  const bare = formula.replace(/\\(text|mathrm|textbf|textit|operatorname|mbox|tag)\s*\{[^{}]*\}/g, "").replace(/\\[a-zA-Z]+/g, " \\ ");
  return /[A-Za-z]{3,}\s+[A-Za-z]{2,}|[A-Za-z]{2,}\s+[A-Za-z]{3,}/.test(bare);
}

/** Return whether a part of a formula can stand in braces of its own. */
function selfContained(formula, from, to) {
  const part = formula.slice(from, to);
  if (/\\\\|(^|[^\\])&|\\(begin|end|left|right|middle|tag|over)\b/.test(part)) return false;
  if (/\\[a-zA-Z]*$/.test(formula.slice(0, from)) && /^[a-zA-Z]/.test(part)) return false;
  if (/[\^_]\s*$/.test(formula.slice(0, from)) || /^\s*[\^_]/.test(formula.slice(to))) return false;
  let depth = 0;
  for (let at = 0; at < part.length; at += 1) {
    if (part[at] === "\\") at += 1;
    else if (part[at] === "{") depth += 1;
    else if (part[at] === "}" && (depth -= 1) < 0) return false;
  }
  return depth === 0;
}

/** Do something that writes style attributes, as KaTeX does for some signs: the page's policy
    knows none, and lets pass what goes through the object model. */
function withStyles(work) {
  const { setAttribute } = Element.prototype;
  Element.prototype.setAttribute = function set(name, value) {
    if (name === "style") this.style.cssText = value;
    else setAttribute.call(this, name, value);
  };
  try {
    work();
  } finally {
    Element.prototype.setAttribute = setAttribute;
  }
}

/** Set a formula; `hits`: `{from, to, names}` inside it, which are marked where TeX allows it.
    Return whether they are. */
function setFormula(into, formula, display, hits) {
  let marked = formula;
  let all = hits.length > 0;
  for (const hit of [...hits].reverse()) {
    if (selfContained(formula, hit.from, hit.to)) {
      marked = `${marked.slice(0, hit.from)}\\htmlClass{${OURS} ${hit.names}}{${marked.slice(hit.from, hit.to)}}${marked.slice(hit.to)}`;
    } else all = false;
  }
  const tries = all ? [[marked, true], [formula, false]] : [[formula, false]];
  for (const [source, exact] of tries) {
    try {
      withStyles(() => window.katex.render(source, into, { ...KATEX, displayMode: display }));
      return exact;
    } catch {
      into.textContent = "";
    }
  }
  return null;
}

const channelOf = (nodes, which) => (which.length ? nodes[which[which.length - 1]].channel || "pattern" : "");
const hitNames = (nodes, which) => `hit ${channelOf(nodes, which)}`;

/** Return text with its Markdown and mathematics set.  `inline`: it is one line. */
const prose = (text, inline) =>
  marked([{ text: text || "", nodes: [], ends: [] }], [], { inline });

/** Set a text that is a formula without delimiters; return whether it is one. */
function setBare(into, text) {
  const bare = text.replace(/^\$+|\$+$/g, "");
  const rest = bare.replace(/\\(?:text|mathrm|operatorname)\{[^{}]*\}|\\(?:[a-zA-Z]+|[^a-zA-Z])/g, " ");
  if (!isRendered() || bare.length > LONGEST_FORMULA || !/[=<>≤≥≈\^]|\\[a-zA-Z]|_\{/.test(bare) || /[$%#&~]|[a-z]{3}|\d [a-z]/.test(rest)) return false;
  into.title = text;
  // In a line of its own there is room: fractions are set as large as in a display.
  return setFormula(into, `\\displaystyle ${bare}`, false, []) !== null;
}

/** Return a wording of a node: a formula where it is one, else as it is written. */
function wording(text) {
  const code = h("code.wording");
  if (!setBare(code, text)) code.append(plain(text));
  return code;
}

/** Return the label of a node: a formula, or words with formulas. */
function nodeLabel(node) {
  const formula = h("span");
  return setBare(formula, nodeName(node)) ? formula : prose(nodeName(node), true);
}

/** Return the pieces of a text with the hits of nodes marked.

    `pieces`: `{text, nodes, ends}` one after the other, or `{skipped}` for characters that are not
    there; nodes and ends count from 0.  `onnode(node)` hears which number was pressed, `onskipped()`
    that all of it is wanted. */
function marked(pieces, nodes, { rendered = isRendered(), onnode, onskipped, inline } = {}) {
  const into = h("div", { class: rendered ? "response rendered" : "response source" });
  if (rendered) fit.observe(into);
  let part = [];
  const flush = () => {
    if (part.length) mark(part, nodes, rendered && Boolean(window.katex), into, onnode, inline);
    part = [];
  };
  for (const piece of pieces) {
    if (piece.skipped === undefined) part.push(piece);
    else {
      flush();
      into.append(h("p.skipped", `${format.int(piece.skipped)} characters are hidden. `, onskipped ? h("button", { type: "button", onclick: onskipped }, "show all") : null));
    }
  }
  flush();
  return into;
}

// What does not break into lines, a display or a box, is scrolled where it is wider than its text.
const fit = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    const room = target.clientWidth;
    if (!room) continue;
    for (const formula of target.querySelectorAll(".formula, .grid")) {
      const display = !formula.matches(".formula:not(.display)");
      const wide = display ? formula.scrollWidth > room : formula.firstChild.getBoundingClientRect().width > room;
      if (!display) formula.classList.toggle("wide", wide);
      if (wide) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  }
});

// Markdown, as far as it cannot be taken for arithmetic: `2*3*4`, `#### 72` and `+ 5` stay as they
// are written.  There are no links, no pictures and no HTML.
const RULE = /^ {0,3}(?:(?:- *){3,40}|(?:\* *){3,40}|(?:_ *){3,40})$/;
const HEADING = /^ {0,3}#{1,6} +(?=\S)/;
const ITEM = /^( *)([-*•]|\d{1,3}[.)]) +(?=\S)/;
const DIVIDER = /^ *\|?(?: *:?-+:? *\|)+ *:?-*:? *$/;
const WORD = /\p{L}{2}/u;
const MAX_EMPHASES = 5000;
const MAX_CELLS = 2000;
const BOXES = { h: "strong.heading", li: "span.item", hr: "hr", gap: "span.gap", table: "table.grid" };
// In place of a formula or of code, whose characters are no markup.
const OPAQUE = "\ue000";

/** Return a text as long as the given one, in which what stands in some places is opaque. */
function masked(text, places) {
  let [made, at] = ["", 0];
  for (const { start, end } of places) {
    made += text.slice(at, start) + OPAQUE.repeat(end - start);
    at = end;
  }
  return made + text.slice(at);
}

/** Return emphasis and code in a line `[start, end)` of a masked text: `{start, end, from, to, tag}`.
    A star between two signs that are no blanks is a sign of arithmetic. */
function emphases(text, start, end) {
  const found = [];
  const open = {};
  for (const { 0: sign, index } of text.slice(start, end).matchAll(/`+|\*+/g)) {
    const at = start + index;
    const after = at + sign.length;
    const isCode = sign[0] === "`";
    if (sign.length > 3 || (!isCode && Object.keys(open).some((name) => name[0] === "`"))) continue;
    const [before, behind] = [at > start ? text[at - 1] : " ", after < end ? text[after] : " "];
    const opens = isCode || (/[\s([{"'>|:—-]/.test(before) && /\S/.test(behind));
    const closes = isCode || (/\S/.test(before) && /[\s)\]}"'<|.,:;!?—-]/.test(behind));
    const from = open[sign];
    if (from !== undefined && closes && from < at) {
      if (sign !== "*" || WORD.test(text.slice(from, at))) {
        const tag = isCode ? "code" : sign === "*" ? "em" : "strong";
        found.push({ start: from - sign.length, end: after, from, to: at, tag });
      }
      // What was opened inside and is not closed is no emphasis.
      for (const name of Object.keys(open)) if (open[name] >= from) delete open[name];
    } else if (opens) open[sign] = after;
  }
  return found;
}

/** Return the lines of a masked text as blocks: `{start, end, from, to, tag}`, `end` being behind the
    newline and `[from, to)` what is shown; `tag`: h, li, hr, gap, table (with its `rows`) or none. */
function blocks(text) {
  const lines = [];
  for (let start = 0; start < text.length;) {
    const newline = text.indexOf("\n", start);
    const to = newline < 0 ? text.length : newline;
    lines.push({ start, end: Math.min(text.length, to + 1), from: start, to });
    start = to + 1;
  }
  const found = [];
  const words = ({ from, to }) => text.slice(from, to);
  let cells = 0;
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at];
    const shown = words(line);
    const item = ITEM.exec(shown);
    const heading = HEADING.exec(shown);
    if (shown.includes("|") && lines[at + 1] && DIVIDER.test(words(lines[at + 1])) && cells < MAX_CELLS) {
      const rows = [cellsOf(text, line)];
      let last = at + 1;
      while (cells < MAX_CELLS && lines[last + 1] && words(lines[last + 1]).includes("|")) {
        last += 1;
        rows.push(cellsOf(text, lines[last]));
        cells += rows[rows.length - 1].length;
      }
      found.push({ ...line, end: lines[last].end, tag: "table", rows });
      at = last;
    } else if (RULE.test(shown)) found.push({ ...line, tag: "hr" });
    else if (!shown.trim()) found.push({ ...line, tag: "gap" });
    else if (heading && WORD.test(shown)) found.push({ ...line, from: line.from + heading[0].length, tag: "h" });
    else if (item) {
      const [all, blank, sign] = item;
      // "* 3" may be a factor and "- 3" a term: then the sign is shown.
      const behind = shown.slice(all.length, all.length + 16);
      const dot = /[-*]/.test(sign) && (/^[^\d(+.-]/.test(behind) || WORD.test(behind));
      const from = line.from + blank.length;
      found.push({ ...line, from, tag: "li", depth: Math.min(6, blank.length / 2), body: line.from + all.length, dot });
    } else found.push({ ...line, tag: null });
  }
  return found;
}

/** Return the cells of a line of a table. */
function cellsOf(text, { from, to }) {
  const found = [];
  let start = from;
  for (let at = from; at <= to; at += 1) {
    if (at < to && (text[at] !== "|" || text[at - 1] === "\\")) continue;
    // What is in front of the first bar and behind the last one is no cell if it is blank.
    if (text.slice(start, at).trim() || (start > from && at < to)) found.push({ from: start, to: at });
    start = at + 1;
  }
  return found;
}

function mark(pieces, nodes, rendered, into, onnode, inline) {
  const text = pieces.map((piece) => piece.text).join("");
  let start = 0;
  const places = pieces.map((piece) => {
    const place = { start, end: start + piece.text.length, nodes: piece.nodes, ends: piece.ends };
    start = place.end;
    return place;
  });
  const number = (node) => h(onnode ? "button" : "span", {
    type: onnode ? "button" : null, class: `number ${nodes[node].channel || "pattern"}`, tabindex: onnode ? "-1" : null,
    "aria-label": onnode ? `end of node ${node + 1}` : null, onclick: onnode && (() => onnode(node)),
  }, String(node + 1));
  const numbers = (ends, box) => box.append(...ends.map(number));
  // Of markup that is not shown the numbers are.
  const pass = (from, to, box) =>
    numbers(places.filter((place) => place.end > from && place.end <= to).flatMap((place) => place.ends), box);
  const run = (from, to, box) => {
    for (const place of places) {
      if (from >= to || place.end <= from || place.start >= to) continue;
      const part = text.slice(Math.max(from, place.start), Math.min(to, place.end));
      if (place.nodes.length) {
        box.append(h("mark", {
          class: hitNames(nodes, place.nodes), "data-nodes": place.nodes.map((node) => node + 1).join(" "),
          title: place.nodes.map((node) => `node ${node + 1}: ${nodes[node].label || nodes[node].expression || ""}`).join("\n"),
        }, part));
      } else box.append(plain(part));
      if (place.end <= to) numbers(place.ends, box);
    }
  };
  if (!rendered) return run(0, text.length, into);

  const set = (math, box) => {
    const source = text.slice(math.from, math.to);
    const inside = places.filter((place) => place.end > math.start && place.start < math.end);
    const hits = inside.filter((place) => place.nodes.length && place.end > math.from && place.start < math.to).map((place) => ({
      from: Math.max(place.start, math.from) - math.from, to: Math.min(place.end, math.to) - math.from, names: hitNames(nodes, place.nodes), nodes: place.nodes,
    }));
    const formula = h("span", { class: math.display ? "formula display" : "formula", title: source.slice(0, 300) });
    const exact = setFormula(formula, source, math.display, hits);
    if (exact === null) return run(math.start, math.end, box); // not TeX after all
    if (hits.length) {
      if (!exact) formula.className += ` ${hits[0].names} all`;
      formula.setAttribute("data-nodes", [...new Set(hits.flatMap((hit) => hit.nodes))].map((node) => node + 1).join(" "));
    }
    box.append(formula);
    // Those of a display stand in its line, as its own number would.
    return numbers(inside.filter((place) => place.end <= math.end).flatMap((place) => place.ends), math.display ? formula : box);
  };
  // The newline behind a block is its own: it would be an empty line.
  const behind = (end, to) => Math.min(to, end + /^[^\S\n]*\n?/.exec(text.slice(end, end + 80))[0].length);
  const found = formulas(text).filter((math) => math.code || !isWords(text.slice(math.from, math.to)));
  const bare = masked(text, found);
  const parts = inline ? [{ start: 0, end: text.length, from: 0, to: text.length, tag: null }] : blocks(bare);
  const spans = [...found, ...parts.flatMap(({ from, to, rows }) =>
    (rows ? rows.flat() : [{ from, to }]).flatMap((line) => emphases(bare, line.from, line.to))).slice(0, MAX_EMPHASES)];
  spans.sort((a, b) => a.start - b.start || b.end - a.end);
  let next = 0; // of the spans
  const line = (from, to, box) => {
    let at = from;
    while (next < spans.length && spans[next].start < to) {
      const span = spans[next];
      next += 1;
      if (span.start < at) continue;
      run(at, span.start, box);
      at = span.end;
      if (span.tag) {
        const element = h(span.tag);
        pass(span.start, span.from, box);
        line(span.from, span.to, element);
        box.append(element);
        pass(span.to, span.end, box);
        continue;
      }
      if (span.code) {
        const code = h("code.fenced");
        run(span.start, span.end, code);
        box.append(code);
      } else set(span, box);
      if (span.code || span.display) {
        at = behind(span.end, to);
        pass(span.end, at, box);
      }
    }
    if (at < to) run(at, to, box);
  };
  for (const part of parts) {
    const { from, tag } = part;
    if (tag === null) {
      line(from, part.end, into);
      continue;
    }
    const box = h(BOXES[tag], tag === "li" ? { vars: { depth: part.depth } } : {});
    into.append(box);
    pass(part.start, from, box);
    let at = from;
    if (tag === "li") {
      const [sign, body] = [h("span", { class: part.dot ? "marker dot" : "marker" }), h("span")];
      run(from, part.body, sign);
      line(part.body, part.to, body);
      box.append(sign, body);
    } else if (tag === "h") line(from, part.to, box);
    else if (tag === "gap") run(from, part.end, box);
    else {
      for (const cells of part.rows || []) {
        box.append(h("tr", cells.map((cell) => {
          const element = h("td");
          pass(at, cell.from, element);
          line(cell.from, cell.to, element);
          at = cell.to;
          return element;
        })));
      }
      pass(at, part.end, into);
      continue;
    }
    if (tag !== "gap") pass(part.to, part.end, box);
  }
  return null;
}

const SOURCE = "consensuspr.source";

/** Return whether mathematics is set; a page in a sandbox has no storage. */
function isRendered() {
  try {
    return sessionStorage.getItem(SOURCE) !== "1";
  } catch {
    return true;
  }
}

const setRendered = (rendered) => sessionStorage.setItem(SOURCE, rendered ? "0" : "1");
