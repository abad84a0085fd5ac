/* Elements and figures.  Text goes into the document as text only, whatever it holds: nothing in
   this folder parses markup, and attributes that could run or fetch something are not set from data. */
(function (app) {
  "use strict";

  /** Return what a browser's storage says, null where a page may have none (in a sandbox). */
  app.kept = function kept(ask) {
    try {
      return ask();
    } catch {
      return null;
    }
  };

  app.views = {}; // by the first part of the address: async (context) -> {title, element, update}

  /** Return an element.  `attributes`: `on…` are listeners, `vars` custom properties; null and
      false are left out, true is an empty attribute.  Children are elements, texts, lists, null. */
  app.h = function h(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "vars") {
        for (const [key, one] of Object.entries(value)) element.style.setProperty(`--${key}`, one);
      } else element.setAttribute(name, value === true ? "" : value);
    }
    app.fill(element, children);
    return element;
  };

  app.fill = function fill(element, children) {
    for (const child of [children].flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : app.plain(String(child)));
    }
    return element;
  };

  // What a terminal or a reader would act on or hide is written out instead.
  const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f\u202a-\u202e\u2066-\u2069]/g;

  /** Return text without signs that control or turn around what is shown. */
  app.plain = function plain(text) {
    return text.replace(HIDDEN, (sign) => {
      const code = sign.charCodeAt(0);
      if (code < 0x20) return String.fromCharCode(0x2400 + code);
      return code === 0x7f ? "\u2421" : `⟨${code.toString(16).toUpperCase()}⟩`;
    });
  };

  const numbers = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
  const minus = (shown) => shown.replace("-", "\u2212"); // as wide as the digits, and no hyphen
  const whole = (value) => minus(numbers.format(value));
  const NONE = "–";
  app.known = (value) => value !== null && value !== undefined;
  const exists = (value) => app.known(value) && Number.isFinite(value);

  const fixed = (value, decimals) => minus(value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals }));
  const short = (value) => (Math.abs(value) >= 1000 ? whole(value) : minus(String(Number(value.toPrecision(4)))));

  app.format = {
    NONE,
    int: (value) => (exists(value) ? whole(value) : NONE),
    number(value) {
      if (!exists(value)) return NONE;
      const size = Math.abs(value);
      return size >= 1000 ? whole(value) : minus(value.toFixed(size >= 100 ? 1 : size >= 10 ? 2 : 3));
    },
    tpn: (value) => (exists(value) ? (value >= 1000 ? whole(value) : value.toFixed(1)) : NONE),
    /** As short as it can be said: factors, terms of a formula, marks of an axis. */
    short: (value) => (exists(value) ? short(value) : NONE),
    percent(value) {
      if (!exists(value)) return NONE;
      const share = 100 * value;
      return `${share > 0 && share < 1 ? share.toFixed(1) : Math.round(share)}\u202f%`;
    },
    text: (value) => (value === null || value === undefined ? NONE : String(value)),
    count: (number, name) => `${whole(number)} ${name}${number === 1 ? "" : "s"}`,
  };

  /** Return a number as a Format says: `{scale, decimals, unit}`. */
  app.formatted = function formatted(value, how) {
    if (typeof value === "string") return value;
    if (!exists(value)) return NONE;
    const { scale = 1, decimals = null, unit = "" } = how || {};
    const scaled = value * scale;
    return (decimals !== null ? fixed(scaled, decimals) : short(scaled)) + unit;
  };

  /** Return the link to a state of the page: parts of its path, then what is chosen. */
  app.link = function link(parts, chosen) {
    const path = parts.map((part) => encodeURIComponent(part)).join("/");
    const query = app.query(chosen);
    return `#/${path}${query ? `?${query}` : ""}`;
  };

  /** Return what is chosen as a query; what is not chosen is left out, a list is given one by one. */
  app.query = function query(chosen) {
    const parts = new URLSearchParams();
    for (const [name, values] of Object.entries(chosen || {})) {
      for (const value of [values].flat()) {
        if (value !== null && value !== undefined && value !== "") parts.append(name, String(value));
      }
    }
    return parts.toString();
  };

  /** Say something to whoever does not see the page. */
  app.tell = function tell(sentence) {
    document.getElementById("status").textContent = sentence;
  };

  const { h, format } = app;

  app.verdict = function verdict(row) {
    const [kind, sign, word] =
      row.status && row.status !== "OK" ? ["failed", "!", row.status.toLowerCase().replaceAll("_", " ")]
      : row.acc === 1 ? ["right", "✓", "right"]
      : row.acc === 0 ? ["wrong", "✗", "wrong"]
      : ["unknown", "?", "unknown"];
    return h("span", { class: `verdict ${kind}` }, h("span", { "aria-hidden": "true" }, sign), ` ${word}`);
  };

  /** A share as a small bar behind its figure. */
  app.share = function share(value, shown) {
    return h("span", { class: "share", vars: { share: exists(value) ? Math.max(0, Math.min(1, value)) : 0 } },
      shown === undefined ? format.percent(value) : shown);
  };

  app.FLAGS = {
    guarded: "lowered by the guard", wrong_high: "wrong, yet NCR high",
    right_none: "right, yet no node", failed: "without a reward",
  };

  app.remarks = function remarks(row) {
    return (row.flags || []).map((flag) => h("span", { class: "badge warn" }, app.FLAGS[flag] || flag));
  };

  const CLIPPED = 26;

  /** Return both ends of a text that is longer than `most`: they tell a name from others. */
  app.shorten = (text, most) => (text.length > most ? `${text.slice(0, Math.floor(most / 2) - 1)}…${text.slice(-Math.floor(most / 2))}` : text);

  app.clip = (text) => h("span", { class: "clip name", title: text }, app.shorten(format.text(text), CLIPPED));

  /** Return what may be wider than the window, so that it is scrolled alone. */
  app.scroll = (label, element, more) => h("div", { class: more ? `scroll ${more}` : "scroll", tabindex: "0", role: "region", "aria-label": label }, element);

  app.crumbs = function crumbs(...steps) {
    const parts = steps.filter((step) => step);
    return h("nav", { class: "crumbs", "aria-label": "Where this is" },
      h("ol", {}, parts.map(([text, href]) => h("li", {}, href ? h("a", { href }, app.clip(text)) : app.clip(text)))));
  };
})((window.consensuspr = window.consensuspr || {}));
