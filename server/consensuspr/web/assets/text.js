/* Responses: hits of nodes marked in place, mathematics set or as its source. */
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
    if (sign !== "$" && sign !== "\\") { at += 1; continue; }
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

/** Return text in which mathematics is set: problems, labels, wordings. */
const prose = (text, rendered) =>
  marked([{ text: text || "", nodes: [], ends: [] }], [], { rendered });

/** Return a wording of a node: LaTeX where it looks like it, else as it is written. */
function wording(text) {
  const code = h("code.wording");
  // In a line of its own there is room: fractions are set as large as in a display.
  if (isRendered() && /\\[a-zA-Z]|\^|_\{/.test(text) && setFormula(code, `\\displaystyle ${text.replace(/^\$+|\$+$/g, "")}`, false, []) !== null) {
    code.title = text;
    return code;
  }
  code.append(plain(text));
  return code;
}

/** Return the pieces of a text with the hits of nodes marked.

    `pieces`: `{text, nodes, ends}` one after the other, or `{skipped}` for characters that are not
    there; nodes and ends count from 0.  `onnode(node)` hears which number was pressed, `onskipped()`
    that all of it is wanted. */
function marked(pieces, nodes, { rendered = isRendered(), onnode, onskipped } = {}) {
  const into = h("div", { class: rendered ? "response rendered" : "response source" });
  if (rendered) fit.observe(into);
  let part = [];
  const flush = () => {
    if (part.length) mark(part, nodes, rendered && Boolean(window.katex), into, onnode);
    part = [];
  };
  for (const piece of pieces) {
    if (piece.skipped === undefined) part.push(piece);
    else {
      flush();
      into.append(h("p.skipped", `${format.int(piece.skipped)} characters are left out here. `, onskipped ? h("button", { type: "button", onclick: onskipped }, "show all") : null));
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
    for (const formula of target.querySelectorAll(".formula")) {
      const display = formula.classList.contains("display");
      const wide = display ? formula.scrollWidth > room : formula.firstChild.getBoundingClientRect().width > room;
      if (!display) formula.classList.toggle("wide", wide);
      if (wide) formula.tabIndex = 0;
      else formula.removeAttribute("tabindex");
    }
  }
});

function mark(pieces, nodes, rendered, into, onnode) {
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
  const run = (from, to, box) => {
    for (const place of places) {
      if (place.end <= from || place.start >= to) continue;
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
  // What stands behind a block begins a line as it is: the end of its own line would be an empty one.
  const behind = (end) => {
    const next = end + /^[^\S\n]*\n?/.exec(text.slice(end, end + 80))[0].length;
    numbers(places.filter((place) => place.end > end && place.end <= next).flatMap((place) => place.ends), into);
    return next;
  };
  let at = 0;
  for (const math of rendered ? formulas(text) : []) {
    if (math.code) {
      const code = h("code.fenced");
      run(at, math.start, into);
      run(math.start, math.end, code);
      into.append(code);
      at = behind(math.end);
      continue;
    }
    const source = text.slice(math.from, math.to);
    if (isWords(source)) continue;
    const inside = places.filter((place) => place.end > math.start && place.start < math.end);
    const hits = inside.filter((place) => place.nodes.length && place.end > math.from && place.start < math.to).map((place) => ({
      from: Math.max(place.start, math.from) - math.from, to: Math.min(place.end, math.to) - math.from, names: hitNames(nodes, place.nodes), nodes: place.nodes,
    }));
    const formula = h("span", { class: math.display ? "formula display" : "formula", title: source.slice(0, 300) });
    const exact = setFormula(formula, source, math.display, hits);
    if (exact === null) continue; // not TeX after all: it stays as it was written
    run(at, math.start, into);
    if (hits.length) {
      if (!exact) formula.className += ` ${hits[0].names} all`;
      formula.setAttribute("data-nodes", [...new Set(hits.flatMap((hit) => hit.nodes))].map((node) => node + 1).join(" "));
    }
    into.append(formula);
    // Those of a display stand in its line, as its own number would.
    numbers(inside.filter((place) => place.end <= math.end).flatMap((place) => place.ends), math.display ? formula : into);
    at = math.display ? behind(math.end) : math.end;
  }
  run(at, text.length, into);
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
