/* Elements, figures, tables and controls.  Text goes into the document as text only, whatever it
       holds: nothing in this folder parses markup, and attributes that could run or fetch something are
       not set from data. */
"use strict";

const views = {}; // by the first part of the address: async (context) -> {title, element, update}

/** Return an element.  `what`: its tag and classes, `p.about`.  `attributes`, if there are some:
    `on…` are listeners, `vars` custom properties; null and false are left out, true is an empty
    attribute.  Children are elements, texts, lists, null. */
function h(kind, ...children) {
  const [tag, ...classes] = kind.split(".");
  const element = document.createElement(tag);
  const given = children[0] && Object.getPrototypeOf(children[0]) === Object.prototype;
  for (const [name, value] of Object.entries(given ? children.shift() : {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") classes.push(...value.split(" "));
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "vars") {
      for (const [key, text] of Object.entries(value)) element.style.setProperty(`--${key}`, text);
    } else element.setAttribute(name, value === true ? "" : value);
  }
  element.classList.add(...classes.filter((name) => name));
  return fill(element, children);
}

function fill(element, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(String(child)));
  }
  return element;
}

/** Replace the children of an element. */
function put(element, ...children) {
  element.replaceChildren();
  return fill(element, children);
}

// Signs that a terminal or a reader would act on or hide are written out.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g;

/** Return text without signs that control or turn around what is shown. */
function plain(text) {
  return text.replace(HIDDEN, (sign) => {
    const code = sign.charCodeAt(0);
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code === 0x7f ? "\u2421" : `⟨${code.toString(16).toUpperCase()}⟩`;
  });
}

const NONE = "–";
const exists = (value) => known(value) && Number.isFinite(value);
// The minus sign is as wide as the digits, and no hyphen.
const minus = (text) => text.replace("-", "\u2212");
const fixed = (value, decimals) => minus(value.toLocaleString("en", {
  minimumFractionDigits: decimals, maximumFractionDigits: decimals,
}));
const short = (value) =>
  (Math.abs(value) >= 1000 ? fixed(value, 0) : minus(String(Number(value.toPrecision(4)))));
const digits = (size) => (size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3);
const checked = (say) => (value) => (exists(value) ? say(value) : NONE);

const known = (value) => value !== null && value !== undefined;
const format = {
  NONE,
  int: checked((value) => fixed(value, 0)),
  number: checked((value) => fixed(value, digits(Math.abs(value)))),
  tpn: checked((value) => fixed(value, value >= 1000 ? 0 : 1)),
  /** As short as possible: factors, terms of a formula, marks of an axis. */
  short: checked(short),
  percent: checked((value) => `${fixed(100 * value, value > 0 && value < 0.01 ? 1 : 0)}\u202f%`),
  text: (value) => (known(value) ? String(value) : NONE),
  count: (number, name, plural = "s") => `${fixed(number, 0)} ${name}${number === 1 ? "" : plural}`,
};

/** Return a number as a NumberFormat of figures.py says: `{scale, decimals, unit}`. */
function formatted(value, style) {
  if (typeof value === "string") return value;
  const { scale = 1, decimals = null, unit = "" } = style || {};
  return checked((number) => {
    const scaled = number * scale;
    return (decimals === null ? short(scaled) : fixed(scaled, decimals)) + unit;
  })(value);
}

/** Return the link to a state of the page: parts of its path, then the chosen values. */
function link(parts, chosen) {
  const words = query(chosen);
  return `#/${parts.map(encodeURIComponent).join("/")}${words ? `?${words}` : ""}`;
}

/** Return the chosen values as a query; a list is given one by one. */
function query(chosen) {
  const parts = new URLSearchParams();
  for (const [name, values] of Object.entries(chosen || {})) {
    for (const value of [values].flat()) {
      if (known(value) && value !== "") parts.append(name, String(value));
    }
  }
  return parts.toString();
}

/** Read a sentence to whoever does not see the page. */
const tell = (sentence) => put(document.getElementById("status"), sentence);


function verdict(row) {
  const [kind, sign, word] = row.status && row.status !== "OK"
      ? ["failed", "!", row.status.toLowerCase().replaceAll("_", " ")]
      : row.acc === 1 ? ["right", "✓", "right"]
      : row.acc === 0 ? ["wrong", "✗", "wrong"]
      : ["unknown", "?", "unknown"];
  return h("span", { class: `verdict ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${word}`);
}

/** A share as a small bar behind its figure. */
const share = (value, text = format.percent(value)) => h("span.share", {
  vars: { share: exists(value) ? Math.max(0, Math.min(1, value)) : 0 },
}, text);

/** A difference with its sign; coloured unless `plain`.  `points`: a whole one is 100. */
function signed(value, { points, plain } = {}) {
  if (!exists(value)) return NONE;
  const size = points ? String(Number((100 * Math.abs(value)).toFixed(1))) : format.number(Math.abs(value));
  const none = !/[1-9]/.test(size);
  const text = none ? "±0" : `${value > 0 ? "+" : "−"}${size}`;
  return h("span", { class: none || plain ? null : value > 0 ? "yes" : "no" }, text);
}

const FLAGS = {
  guarded: "lowered by the guard", wrong_all: "wrong, but all nodes",
  right_none: "right, but no node", failed: "without a reward",
};
const remarks = (row) => row.flags.map((flag) => h("span.badge.warn", FLAGS[flag] || flag));

const CLIPPED = 26;

/** Return both ends of a long text: they tell a name from others. */
const shorten = (text, most) => (text.length > most
  ? `${text.slice(0, Math.floor(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text);
const clip = (text) => h("span.clip.name", { title: text }, shorten(format.text(text), CLIPPED));

const hint = (...children) => h("p.about", children);
const warning = (...children) => h("p.warned", children);

const crumbs = (...steps) => h("nav.crumbs", { "aria-label": "Where this is" },
  h("ol", steps.filter((step) => step).map(([text, href]) =>
    h("li", href ? h("a", { href }, clip(text)) : clip(text)))));

const facts = (pairs) => h("ul.facts", 
  pairs.filter((fact) => fact && known(fact[1]) && fact[1] !== NONE).map(([name, value]) =>
    h("li", h("span", name), h("b", value))));

/** Return names and values as a list. */
const pairs = (values, look) => h("dl", { class: look },
  values.map(([name, value]) => [h("dt", name), h("dd", value)]));

/** Return a table that scrolls alone where it is wider than the window.

    `columns`: `{id, title, about, over, numeric, head, lead, optional, unsorted, cell(row, at),
    look(row)}`; an optional one is shown if a row has a value under its id.
    Neighbours with the same `over` stand under that heading.  `head`: names the row; `lead`: holds
    the link of the row, `href(row)`.  `look(row)`: attributes of the cell.
    `rows`, or `groups` of rows.  `data(row)`: attributes of a row; `below(row)`: stands under it.
    `onsort(id, up)` is called with the column to sort by; `sort`, `up`: the present order. */
function table(spec) {
  const { label, rows, groups = [rows], href, data, name, below, foot } = spec;
  const columns = spec.columns.filter(({ id, optional }) => !optional || rows.some((row) => known(row[id])));
  const cellOf = (column, row, at) => {
    const content = column.cell(row, at);
    const attributes = { class: column.numeric ? "figure" : null, ...(column.look && column.look(row)) };
    if (column.head) return h("th", { scope: "row", ...attributes }, content);
    return h("td", attributes, !column.lead ? content
      : h("a", { href: href(row), class: "row", "aria-label": name ? name(row) : null }, content));
  };
  const line = (row, at) => {
    const extra = below && below(row);
    return [
      h("tr", { "data-href": href && href(row), class: extra ? "joined" : null, ...(data && data(row)) },
        columns.map((column) => cellOf(column, row, at))),
      extra ? h("tr", h("td", { colspan: String(columns.length) }, extra)) : null,
    ];
  };
  return h("div", { class: `scroll ${spec.frame || ""}`, tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: spec.look }, h("caption", { class: spec.caption ? null : "unseen" }, label),
      headsOf({ ...spec, columns }), groups.map((group, at) =>
        h("tbody", { class: spec.bold === at ? "totals" : null }, group.map(line))), foot));
}

function headsOf({ columns, sort, up, onsort }) {
  const over = []; // headings over neighbours, and how many columns each has
  for (const { over: title } of columns) {
    const last = over[over.length - 1];
    if (last && title && last.title === title) last.span += 1;
    else over.push({ title, span: 1 });
  }
  const begins = (column, at) => column.over && (!at || columns[at - 1].over !== column.over);
  const head = (column, at) => {
    const { id, title, about, numeric } = column;
    const sorted = sort === id && onsort;
    return h("th", {
      scope: "col", title: about, "aria-sort": sorted ? (up ? "ascending" : "descending") : null,
      class: `${numeric ? "figure" : ""} ${begins(column, at) ? "begins" : ""} ${column.width || ""}`,
    }, !onsort || column.unsorted || source.kept ? title : h("button", {
      type: "button", "aria-label": column.over ? `${column.over}, ${title}` : null,
      onclick: () => onsort(id, sorted && !up),
    }, title));
  };
  return h("thead", !over.some(({ title }) => title) ? null
    : h("tr.over", over.map(({ title, span }) => (title
      ? h("th", { scope: "colgroup", colspan: String(span), class: "begins" }, title)
      : h("td", { colspan: String(span) })))),
  h("tr", columns.map(head)));
}

/** Return a DataTable of figures.py. */
function dataTable({ caption, columns, sections, bold }) {
  const cell = (column, at) => (row) => [formatted(row[at].value, column.format),
    row[at].note ? h("span.note", ` ${row[at].note}`) : null];
  return table({
    label: caption, caption: true, groups: sections, bold,
    columns: columns.map((column, at) => ({
      title: column.heading || h("span.unseen", "name"),
      numeric: column.numeric, head: !at && !column.numeric, cell: cell(column, at),
    })),
  });
}

/** Return a labelled choice, or null if there is nothing to choose. */
function choice(label, name, options, chosen, { all = "all", always, onchange } = {}) {
  if (options.length < 2 && !always) return null;
  return h("label.field", h("span", label),
    h("select", { name, onchange: onchange && ((event) => onchange(event.target.value || null)) },
      all === null ? null : h("option", { value: "" }, all), options.map(([value, text]) =>
        h("option", { value, selected: String(chosen) === String(value) }, text))));
}

/** Return a labelled text field; `onchange` is called with the text, null if it is empty. */
function input(label, name, value, { wide, onchange, ...attributes } = {}) {
  return h("label", { class: `field asks ${wide ? "wide" : ""}` }, h("span", label), h("input", {
    name, type: "text", value: value || "", autocomplete: "off", spellcheck: "false", ...attributes,
    onchange: onchange && ((event) => onchange(event.target.value.trim() || null)),
  }));
}

/** Return the field that finds a problem by its text or id. */
const problemSearch = (value, onchange) => input("text", "q", value, {
  id: "search", type: "search", wide: true, placeholder: "text or id of the problem", "aria-keyshortcuts": "/", onchange,
});

const form = (label, ...children) => h("form.filters", {
  role: "search", "aria-label": label, onsubmit: (event) => event.preventDefault(),
}, children);

/** Return a button that turns to an offset; null: there is no such page. */
const turnButton = (to, words, sign, key, change) => h("button", {
  type: "button", disabled: to === null, "aria-label": words, "aria-keyshortcuts": key,
  onclick: () => change(to || null),
}, sign);

/** Return how far a list is shown, with the buttons that turn its pages. */
function pager(nothing, { total, offset, rows, searched }, limit, change) {
  const behind = offset + rows.length;
  const among = known(searched) && searched > total ? ` (${format.int(searched)} searched)` : "";
  return [h("p", { id: "count", role: "status" }, total
      ? `${format.int(offset + 1)}–${format.int(behind)} of ${format.int(total)}` : nothing, among),
    h("span.pager", 
      turnButton(offset > 0 ? Math.max(0, offset - limit) : null, "previous page", "‹", "[", change),
      turnButton(behind < total ? offset + limit : null, "next page", "›", "]", change)),
  ];
}

/** The list that was shown last: from one of its members one goes on to the next. */
let lastList = { hashes: [], back: null };

/** Return the neighbours of a link in that list: `{previous, next, element}`. */
function inList(hash, noun) {
  const { hashes, back } = lastList;
  const at = hashes.indexOf(hash);
  if (at < 0) return { element: null };
  const [previous, next] = [hashes[at - 1], hashes[at + 1]];
  const step = (to, words, sign, key) => (to
    ? h("a", { href: to, "aria-label": words, title: `${words} (${key})` }, sign)
    : h("span.off", sign));
  return {
    previous, next, back, element: h("span.pager", h("a", { href: back }, "list"),
      step(previous, `previous ${noun}`, "‹", "k"), step(next, `next ${noun}`, "›", "j")),
  };
}
