/* Charts and tables, drawn from the values of consensuspr.web.figures: nobody else writes marks.

   Apache ECharts draws into SVG, so that a chart is text, prints, and can be looked into; beside
   every chart stand its figures as a table. */
(function (app) {
  "use strict";

  const { h, format, formatted } = app;
  const SERIES = 8; // colours that page.css names; further series repeat them dashed
  const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
  const LOOKS = { right: "--right", wrong: "--wrong", third: "--series-4", plain: "--series-0" };
  const MAX_SYMBOLS = 40;
  const MOST_UNBROKEN = 32; // characters of a row's name that stand in one line
  const INTEGER = { decimals: 0 };
  const HIDDEN = "\u0000"; // begins the names of series that only hold up a band
  const drawn = new Set();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const known = (value) => value !== null && value !== undefined;
  const place = (look, at) => (typeof look === "number" ? look : Math.max(0, Object.keys(LOOKS).indexOf(look || "") % 4) || at);

  function colorOf(look, at) {
    if (typeof look === "string" && LOOKS[look]) return css(LOOKS[look]);
    return css(`--series-${(typeof look === "number" ? look : at) % SERIES}`);
  }

  function axisOf(axis, isX, names) {
    const line = { lineStyle: { color: css("--line") } };
    const told = {
      name: axis.title || "", nameLocation: "middle", nameGap: isX ? 27 : 46,
      nameTextStyle: { color: css("--quiet"), fontSize: 12 },
      axisLine: line, axisTick: { show: false }, splitLine: { show: !isX && !names, ...line },
      axisLabel: { color: css("--quiet"), fontSize: 11, hideOverlap: true },
      type: names ? "category" : axis.log ? "log" : "value",
    };
    if (names) told.data = names;
    else {
      told.axisLabel.formatter = (value) => formatted(value, { ...axis.format, decimals: axis.format && axis.format.decimals === 0 ? 0 : null });
      // From the first to the last value, unless the chart says otherwise.
      told.min = known(axis.low) ? axis.low : isX ? "dataMin" : undefined;
      told.max = known(axis.high) ? axis.high : isX ? "dataMax" : undefined;
      told.scale = !isX && axis.fromZero !== true;
      if (axis.format && axis.format.decimals === 0) told.minInterval = 1 / (axis.format.scale || 1);
      if (axis.ticks) {
        const texts = new Map(axis.ticks);
        told.axisLabel.customValues = [...texts.keys()];
        told.axisLabel.formatter = (value) => texts.get(value) || "";
      }
    }
    return told;
  }

  function tipOf(chart, names) {
    return (given) => {
      const points = [given].flat().filter((point) => point.data && !point.seriesName.startsWith(HIDDEN) && known(point.data.shown));
      if (!points.length) return "";
      const [first] = points;
      if (first.data.tip) return h("div", { class: "tip" }, h("p", {}, first.data.tip));
      const title = names ? first.name : `${chart.x.title ? `${chart.x.title} ` : ""}${formatted(first.data.value[0], chart.x.format)}`;
      return h("div", { class: "tip" }, h("p", {}, title),
        h("table", {}, points.map((point) => h("tr", {},
          h("td", {}, h("i", { class: "dot", vars: { color: point.color } })), h("td", {}, point.seriesName),
          h("td", { class: "figure" }, point.data.shown)))));
    };
  }

  /** Return names of the bins of bars: as told, else what lies between their ends. */
  function binsOf(chart) {
    if (chart.bins && chart.bins.length) return chart.bins;
    const ends = chart.series.length ? chart.series[0].x : [];
    const say = (value) => formatted(value, chart.x.format);
    return ends.slice(0, -1).map((low, at) => `${say(low)} to ${say(ends[at + 1])}`);
  }

  const PARTS = {
    line(chart) {
      return chart.series.flatMap((one, at) => {
        const index = place(one.look, at);
        const color = colorOf(one.look, at);
        const series = [];
        if (one.low && one.high) {
          // A band is two lines on one another, of which the upper one fills what lies between.
          const line = { type: "line", name: `${HIDDEN}${at}`, stack: `${HIDDEN}${at}`, silent: true, symbol: "none", lineStyle: { opacity: 0 } };
          series.push({ ...line, data: one.x.map((x, row) => [x, one.low[row]]) });
          series.push({ ...line, areaStyle: { color, opacity: 0.15 }, data: one.x.map((x, row) => [x, known(one.high[row]) && known(one.low[row]) ? one.high[row] - one.low[row] : null]) });
        }
        const hollow = new Set(one.hollow || []);
        series.push({
          type: "line", name: one.name, color, connectNulls: false, showSymbol: one.x.length <= MAX_SYMBOLS && !one.faint,
          symbol: SYMBOLS[index % SYMBOLS.length], symbolSize: 5, emphasis: { disabled: true },
          lineStyle: { width: one.faint ? 1 : 2, opacity: one.faint ? 0.35 : 1, type: one.dashed || (index >= SERIES || one.look === "wrong" ? "dashed" : "solid") },
          data: one.x.map((x, row) => ({
            value: [x, one.y[row]], shown: known(one.y[row]) ? formatted(one.y[row], chart.y.format) : null,
            tip: one.tips && one.tips[row], href: one.hrefs && one.hrefs[row],
            itemStyle: hollow.has(row) ? { color: css("--raised"), borderColor: color, borderWidth: 1.5 } : undefined,
          })),
        });
        return series;
      });
    },
    scatter(chart) {
      return chart.series.map((one, at) => ({
        type: "scatter", name: one.name, color: colorOf(one.look, at), symbol: SYMBOLS[place(one.look, at) % SYMBOLS.length], symbolSize: 8,
        itemStyle: { opacity: 0.65 }, cursor: one.hrefs ? "pointer" : "default", emphasis: { disabled: true },
        data: one.x.map((x, row) => ({ value: [x, one.y[row]], shown: formatted(one.y[row], chart.y.format), tip: one.tips && one.tips[row], href: one.hrefs && one.hrefs[row] })),
      }));
    },
    bars(chart) {
      return chart.series.map((one, at) => ({
        type: "bar", name: one.name, color: colorOf(one.look, at), barGap: "8%", barCategoryGap: "22%", emphasis: { disabled: true },
        itemStyle: one.look === "wrong" ? { opacity: 0.55, borderColor: css("--wrong"), borderWidth: 1.5 } : undefined,
        data: one.y.map((y, row) => ({ value: y, shown: formatted(y, chart.y.format), tip: one.tips && one.tips[row] })),
      }));
    },
    shares(chart) {
      const totals = chart.groups.map((_, group) => chart.series.reduce((sum, one) => sum + (one.y[group] || 0), 0));
      return chart.series.map((one, at) => ({
        type: "bar", name: one.name, stack: "all", color: colorOf(one.look, at), barMaxWidth: 34, emphasis: { disabled: true },
        label: { show: Boolean(one.letter), formatter: (point) => (point.value > 0.05 ? one.letter : ""), color: css("--back"), fontSize: 11 },
        data: one.y.map((count, group) => ({
          value: totals[group] ? (count || 0) / totals[group] : 0,
          shown: totals[group] ? `${format.percent((count || 0) / totals[group])} (${format.int(count)})` : format.NONE,
        })),
      }));
    },
  };

  const ROW = 20; // of a legend, in pixels
  const MOST_ROWS = 3; // beyond which a legend is turned like pages

  /** Return how many rows a legend takes, about. */
  function legendRows(names, width) {
    let [rows, used] = [1, 0];
    for (const name of names) {
      const size = 36 + 6.6 * name.length;
      if (used && used + size > width) [rows, used] = [rows + 1, 0];
      used += size;
    }
    return rows;
  }

  function optionOf(chart, width) {
    const shares = chart.kind === "shares";
    const names = chart.kind === "bars" ? binsOf(chart) : shares ? chart.groups : null;
    const series = PARTS[chart.kind](chart);
    const many = chart.series.length > 1 && chart.legend !== false;
    const rows = legendRows(chart.series.filter((one) => !one.faint).map((one) => one.name), width);
    if (chart.diagonal) {
      series.push({ type: "line", name: HIDDEN, silent: true, symbol: "none", data: [[0, 0], [1, 1]], lineStyle: { color: css("--quiet"), type: "dotted", width: 1 } });
    }
    const x = axisOf(chart.x, true, shares ? null : names);
    const y = axisOf(chart.y, false, shares ? names : null);
    const longest = shares ? Math.max(...names.map((name) => name.length)) : 0;
    if (shares) Object.assign(y, { inverse: true, nameGap: 0, name: "" });
    if (shares) Object.assign(x, { min: 0, max: 1 });
    return {
      animation: false, backgroundColor: "transparent",
      textStyle: { fontFamily: css("--sans"), color: css("--ink") },
      grid: { left: shares ? Math.min(150, 16 + 6.5 * longest) : chart.y.title ? 62 : 48, right: 18, top: many ? 14 + ROW * Math.min(rows, MOST_ROWS) : 12, bottom: chart.x.title ? 42 : 26 },
      legend: many ? {
        type: rows > MOST_ROWS ? "scroll" : "plain", top: 0, left: 0, icon: chart.kind === "line" ? undefined : "roundRect",
        formatter: (name) => app.shorten(name, Math.max(12, Math.floor((width - 50) / 6.6))),
        itemWidth: chart.kind === "line" ? 22 : 14, itemHeight: 4, itemGap: 10, textStyle: { color: css("--ink"), fontSize: 12 },
        data: chart.series.filter((one) => !one.faint).map((one) => one.name), pageIconColor: css("--accent"), pageTextStyle: { color: css("--quiet") },
      } : undefined,
      tooltip: {
        trigger: chart.kind === "line" || chart.kind === "bars" ? "axis" : "item", confine: true, transitionDuration: 0,
        backgroundColor: css("--raised"), borderColor: css("--line"), textStyle: { color: css("--ink"), fontSize: 12 },
        axisPointer: { lineStyle: { color: css("--quiet") }, label: { show: false } }, formatter: tipOf(chart, names),
      },
      xAxis: x, yAxis: y, series,
    };
  }

  /** Return the figures of a chart as a Table. */
  function figuresOf(chart) {
    if (chart.table) return chart.table;
    const columns = (first) => [first, ...chart.series.map((one) => ({ heading: one.name, numeric: true, format: chart.kind === "shares" ? { decimals: 0 } : chart.y.format }))];
    if (chart.kind === "scatter") {
      return {
        columns: [{ heading: "", numeric: false }, { heading: chart.x.title, numeric: true, format: chart.x.format }, { heading: chart.y.title, numeric: true, format: chart.y.format }],
        sections: chart.series.map((one) => one.x.map((x, row) => [{ value: (one.tips && one.tips[row]) || one.name, href: (one.hrefs && one.hrefs[row]) || "" }, x, one.y[row]])),
      };
    }
    if (chart.kind !== "line") {
      const names = chart.kind === "bars" ? binsOf(chart) : chart.groups;
      return { columns: columns({ heading: chart.x.title, numeric: false }), sections: [names.map((name, row) => [name, ...chart.series.map((one) => one.y[row])])] };
    }
    const xs = [...new Set(chart.series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const values = chart.series.map((one) => new Map(one.x.map((x, row) => [x, one.y[row]])));
    return { columns: columns({ heading: chart.x.title, numeric: true, format: chart.x.format }), sections: [xs.map((x) => [x, ...values.map((ys) => (ys.has(x) ? ys.get(x) : null))])] };
  }

  /** Return the points of a chart as a keyboard walks them: `{say, at, x, href}`, `at` in figures of the axes. */
  function stopsOf(chart) {
    const told = (one, row) => (one.tips && one.tips[row]) || null;
    const series = chart.series.filter((one) => !one.faint);
    const sayAll = (title, values) => `${title}: ${values.map(([one, value]) => (series.length > 1 ? `${one.name} ${value}` : value)).join("; ")}`;
    if (chart.kind === "scatter") {
      return series.flatMap((one) => one.x.map((x, row) => ({
        x, at: [x, one.y[row]], href: one.hrefs && one.hrefs[row],
        say: told(one, row) || `${one.name}: ${chart.x.title} ${formatted(x, chart.x.format)}, ${chart.y.title} ${formatted(one.y[row], chart.y.format)}`,
      })));
    }
    if (chart.kind === "line") {
      const xs = [...new Set(series.flatMap((one) => one.x))].sort((a, b) => a - b);
      const rows = series.map((one) => new Map(one.x.map((x, row) => [x, row])));
      return xs.flatMap((x) => {
        const here = series.map((one, at) => [one, rows[at].get(x)]).filter(([one, row]) => row !== undefined && known(one.y[row]));
        if (!here.length) return [];
        const [[first, row]] = here;
        return [{ x, at: [x, first.y[row]], href: first.hrefs && first.hrefs[row],
          say: told(first, row) || sayAll(`${chart.x.title} ${formatted(x, chart.x.format)}`, here.map(([one, place]) => [one, formatted(one.y[place], chart.y.format)])) }];
      });
    }
    const names = chart.kind === "bars" ? binsOf(chart) : chart.groups;
    return names.map((name, row) => {
      const values = series.filter((one) => known(one.y[row])).map((one) => [one, formatted(one.y[row], chart.kind === "bars" ? chart.y.format : INTEGER)]);
      const high = Math.max(0, ...series.map((one) => one.y[row]).filter(known));
      return { x: row, at: chart.kind === "bars" ? [row, high] : [0.5, row], href: null, say: sayAll(name, values) };
    });
  }

  function summaryOf(chart) {
    if (chart.empty) return chart.empty;
    const say = (value) => formatted(value, chart.kind === "shares" ? { decimals: 0 } : chart.y.format);
    return chart.series.map((one) => {
      const ys = one.y.filter(known);
      if (!ys.length) return `${one.name}: no figures`;
      return chart.kind === "line" ? `${one.name}: from ${say(ys[0])} to ${say(ys[ys.length - 1])}`
        : `${one.name}: ${format.count(ys.length, "figure")} from ${say(Math.min(...ys))} to ${say(Math.max(...ys))}`;
    }).join("; ");
  }

  /** Return a chart as a figure.  `figure.update(chart)` draws other figures into it; `group` links
      the pointers of charts; `onpoint(x)` hears where a person clicked. */
  app.chart = function chart(told, options) {
    const { group, onpoint } = options || {};
    // An application: what a screen reader does with arrow keys elsewhere, the chart does here.
    const plot = h("div", { class: "plot", role: "application", "aria-roledescription": "chart", "aria-describedby": "chart-keys" });
    const holder = h("div", { class: "figures" });
    const details = h("details", { class: "as-table" }, h("summary", {}, "as a table"), holder);
    const notes = h("div", { class: "notes" });
    const figure = h("figure", { class: onpoint ? "chart leads" : "chart", "data-chart": told.name || null },
      h("figcaption", {}, h("h3", {}, told.title), told.about ? h("p", { class: "about" }, told.about) : null), plot, notes, details);
    let current = told;
    let instance = null;

    const table = () => {
      holder.replaceChildren();
      if (details.open) holder.append(app.table({ sortable: true, ...figuresOf(current), caption: current.title }, { compact: true }));
    };
    const drop = () => {
      if (instance) instance.dispose();
      instance = null;
    };
    const draw = () => {
      plot.setAttribute("aria-label", `${current.title}. ${summaryOf(current)}`);
      notes.replaceChildren(...(current.notes || []).map((note) => h("p", {}, note)));
      const empty = current.empty || !current.series.some((one) => one.y.some(known));
      plot.classList.toggle("empty", Boolean(empty));
      details.hidden = Boolean(empty);
      if (empty) plot.removeAttribute("tabindex");
      else plot.tabIndex = 0;
      if (empty) {
        drop();
        plot.textContent = current.empty || "nothing to draw yet";
        return;
      }
      if (!plot.isConnected || !plot.clientWidth) return;
      if (!instance) {
        plot.textContent = "";
        instance = window.echarts.init(plot, null, { renderer: "svg" });
        if (group) {
          instance.group = group;
          window.echarts.connect(group);
        }
        instance.on("click", (point) => {
          const href = point.data && point.data.href;
          if (href && href.startsWith("#")) location.hash = href;
        });
        if (onpoint) {
          instance.getZr().on("click", (event) => {
            const at = [event.offsetX, event.offsetY];
            if (instance.containPixel("grid", at)) onpoint(instance.convertFromPixel({ gridIndex: 0 }, at)[0]);
          });
        }
      }
      instance.setOption(optionOf(current, plot.clientWidth), { notMerge: true });
    };
    let keyed = false; // whether the figures were opened or closed by the keyboard, which goes along
    details.addEventListener("toggle", () => {
      table();
      if (keyed) (details.open ? holder.querySelector(".scroll") : plot).focus();
      keyed = false;
    });
    let stop = -1; // where the keyboard is
    const walk = (to) => {
      const stops = stopsOf(current);
      if (!stops.length) return;
      stop = Math.max(0, Math.min(stops.length - 1, to(stop, stops.length)));
      const { at, say } = stops[stop];
      if (instance) {
        const [x, y] = instance.convertToPixel({ gridIndex: 0 }, at);
        instance.dispatchAction({ type: "showTip", x, y });
      }
      app.tell(say);
    };
    const open = () => {
      const here = stopsOf(current)[stop];
      if (!here) return;
      if (here.href && here.href.startsWith("#")) location.hash = here.href;
      else if (onpoint) onpoint(here.x);
    };
    const WALKS = {
      ArrowRight: (at) => at + 1, ArrowDown: (at) => at + 1, ArrowLeft: (at) => at - 1, ArrowUp: (at) => at - 1, Home: () => 0, End: (_, size) => size - 1,
    };
    const hide = () => instance && instance.dispatchAction({ type: "hideTip" });
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (Object.hasOwn(WALKS, event.key)) walk(WALKS[event.key]);
      else if (event.key === "Enter") open();
      else if (event.key === "Escape") hide();
      else return;
      event.preventDefault();
    });
    // The figures are a key away from the chart, and the chart from them.
    figure.addEventListener("keydown", (event) => {
      if (event.key !== "t" || event.ctrlKey || event.metaKey || event.altKey || details.hidden) return;
      event.preventDefault();
      keyed = true;
      details.open = !details.open;
    });
    figure.update = (next) => {
      current = next;
      draw();
      table();
    };
    figure.redraw = () => {
      drop();
      draw();
    };
    const resized = new ResizeObserver(() => {
      if (instance && plot.isConnected) instance.resize();
      draw();
    });
    figure.dispose = () => {
      resized.disconnect();
      drawn.delete(figure);
      drop();
    };
    resized.observe(plot);
    drawn.add(figure);
    draw();
    return figure;
  };

  /** Return shares in [0, 1] as a table with shaded cells: a row for each name, a column for each x. */
  app.heat = function heat({ name, title, about, xTitle, xs, rows }) {
    return h("figure", { class: "chart heat", "data-chart": name },
      h("figcaption", {}, h("h3", {}, title), about ? h("p", { class: "about" }, about) : null),
      h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title },
        h("table", { class: "heatmap" }, h("caption", { class: "unseen" }, title),
          h("thead", {}, h("tr", {}, h("th", { scope: "col" }, xTitle), xs.map((x) => h("th", { scope: "col" }, format.int(x))))),
          h("tbody", {}, rows.map(([head, values]) => h("tr", {}, h("th", { scope: "row" }, head), values.map((value) =>
            h("td", { class: known(value) ? `shade s${Math.round(10 * value)}` : "none" }, known(value) ? Math.round(100 * value) : format.NONE))))))));
  };

  /** Draw all charts again: the colours are others. */
  app.recolor = () => drawn.forEach((figure) => figure.redraw());

  /** Let go of the charts of a view that is gone. */
  app.disposeCharts = () => [...drawn].filter((figure) => !figure.isConnected).forEach((figure) => figure.dispose());

  const valueOf = (cell) => (cell !== null && typeof cell === "object" ? cell.value : cell);

  function cellOf(cell, column, head) {
    const more = cell !== null && typeof cell === "object" ? cell : {};
    const text = formatted(valueOf(cell), column.format);
    const bars = more.bars && more.bars.length
      ? h("span", { class: "bars", role: "img", "aria-label": more.bars.map((share, at) => `${(more.labels || [])[at] || at + 1}: ${format.percent(share)}`).join(", ") },
        more.bars.map((share, at) => h("i", { vars: { share }, title: `${(more.labels || [])[at] || at + 1}: ${format.percent(share)}` })))
      : null;
    const href = more.href && more.href.startsWith("#") ? more.href : null;
    const look = column.numeric ? "figure" : head && text.length <= MOST_UNBROKEN ? "unbroken" : null;
    return h(head ? "th" : "td", { scope: head ? "row" : null, class: look },
      bars || (href ? h("a", { href }, text) : text), more.note ? h("span", { class: "note" }, ` ${more.note}`) : null);
  }

  /** Return a Table: `{caption, columns, sections, bold, sortable}`. */
  app.table = function table(told, options) {
    const { compact } = options || {};
    const sorted = { at: null, down: false };
    const bodies = h("table", {});
    const compare = (one, other) => {
      const [a, b] = [valueOf(one[sorted.at]), valueOf(other[sorted.at])];
      if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : 0; // what is not there comes last
      return (a < b ? -1 : a > b ? 1 : 0) * (sorted.down ? -1 : 1);
    };
    const sections = () => told.sections.map((rows, section) => {
      const ordered = sorted.at === null ? rows : [...rows].sort(compare);
      return h("tbody", { class: told.bold === section ? "totals" : null }, ordered.map((row) =>
        h("tr", {}, row.map((cell, at) => cellOf(cell, told.columns[at], at === 0 && !told.columns[0].numeric)))));
    });
    const heads = told.columns.map((column, at) => {
      const head = h("th", { scope: "col", title: column.hint || null, class: column.numeric ? "figure" : null });
      if (!told.sortable) return app.fill(head, [column.heading || h("span", { class: "unseen" }, "name")]);
      return app.fill(head, [h("button", {
        type: "button",
        onclick() {
          sorted.down = sorted.at === at ? !sorted.down : false;
          sorted.at = at;
          heads.forEach((one) => one.removeAttribute("aria-sort"));
          head.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
          bodies.querySelectorAll("tbody").forEach((body) => body.remove());
          bodies.append(...sections());
        },
      }, column.heading || "name")]);
    });
    app.fill(bodies, [told.caption ? h("caption", { class: compact ? "unseen" : null }, told.caption) : null, h("thead", {}, h("tr", {}, heads)), sections()]);
    return h("div", { class: compact ? "scroll compact" : "scroll", tabindex: "0", role: "region", "aria-label": compact ? `figures of ${told.caption}` : told.caption || "table" }, bodies);
  };
})((window.consensuspr = window.consensuspr || {}));
