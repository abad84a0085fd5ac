/* Charts and tables, drawn from the values of consensuspr.web.figures.

   Apache ECharts draws into SVG, so that a chart is text, prints, and can be looked into; beside
   every chart stand its figures as a table. */
(function (app) {
  "use strict";

  const { h, format, formatted, known } = app;
  const SERIES = 8; // colours that page.css names; further series repeat them dashed
  const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
  const LOOKS = { right: "--right", wrong: "--wrong", third: "--series-4", plain: "--series-0" };
  const MAX_SYMBOLS = 40;
  const MOST_UNBROKEN = 32; // characters of a row's name that stand in one line
  const drawn = new Set();

  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const place = (look, at) => (typeof look === "number" ? look : Math.max(0, Object.keys(LOOKS).indexOf(look || "")) || at);
  const colorOf = (look, at) => css(LOOKS[look] || `--series-${place(look, at) % SERIES}`);

  function axisOf(axis, isX, names) {
    const line = { lineStyle: { color: css("--line") } };
    const options = {
      name: axis.title || "", nameLocation: "middle", nameGap: isX ? 27 : 46,
      nameTextStyle: { color: css("--quiet"), fontSize: 12 },
      axisLine: line, axisTick: { show: false }, splitLine: { show: !isX, ...line },
      axisLabel: { color: css("--quiet"), fontSize: 11, hideOverlap: true },
      type: names ? "category" : "value",
    };
    if (names) return { ...options, data: names };
    const whole = axis.format && axis.format.decimals === 0;
    options.axisLabel.formatter = (value) => formatted(value, { ...axis.format, decimals: whole ? 0 : null });
    // From the first to the last value, unless the chart says otherwise.
    options.min = known(axis.low) ? axis.low : isX ? "dataMin" : undefined;
    options.max = known(axis.high) ? axis.high : isX ? "dataMax" : undefined;
    options.scale = !isX && axis.fromZero !== true;
    if (whole) options.minInterval = 1 / (axis.format.scale || 1);
    if (axis.ticks) {
      const texts = new Map(axis.ticks);
      options.axisLabel.customValues = [...texts.keys()];
      options.axisLabel.formatter = (value) => texts.get(value) || "";
    }
    return options;
  }

  function tipOf(chart) {
    return (given) => {
      const points = [given].flat().filter((point) => point.data && known(point.data.shown));
      if (!points.length) return "";
      const [first] = points;
      if (first.data.tip) return h("div", { class: "tip" }, h("p", {}, first.data.tip));
      const title = chart.kind === "bars" ? first.name : `${chart.x.title ? `${chart.x.title} ` : ""}${formatted(first.data.value[0], chart.x.format)}`;
      return h("div", { class: "tip" }, h("p", {}, title),
        h("table", {}, points.map((point) => h("tr", {},
          h("td", {}, h("i", { class: "dot", vars: { color: point.color } })), h("td", {}, point.seriesName),
          h("td", { class: "figure" }, point.data.shown)))));
    };
  }

  function seriesOf(chart, line, at) {
    const index = place(line.look, at);
    const color = colorOf(line.look, at);
    const shown = (y) => (known(y) ? formatted(y, chart.y.format) : null);
    const point = (row) => ({ shown: shown(line.y[row]), tip: line.tips && line.tips[row], href: line.hrefs && line.hrefs[row] });
    const common = { name: line.name, color, symbol: SYMBOLS[index % SYMBOLS.length], emphasis: { disabled: true } };
    if (chart.kind === "bars") {
      return {
        ...common, type: "bar", barGap: "8%", barCategoryGap: "22%",
        itemStyle: line.look === "wrong" ? { opacity: 0.55, borderColor: css("--wrong"), borderWidth: 1.5 } : undefined,
        data: line.y.map((y, row) => ({ value: y, ...point(row) })),
      };
    }
    const data = line.x.map((x, row) => ({ value: [x, line.y[row]], ...point(row) }));
    if (chart.kind === "scatter") return { ...common, type: "scatter", symbolSize: 8, itemStyle: { opacity: 0.65 }, cursor: line.hrefs ? "pointer" : "default", data };
    return {
      ...common, type: "line", connectNulls: false, showSymbol: data.length <= MAX_SYMBOLS, symbolSize: 5, data,
      lineStyle: { width: 2, type: line.dashed || (index >= SERIES || line.look === "wrong" ? "dashed" : "solid") },
    };
  }

  function optionOf(chart, width) {
    const many = chart.series.length > 1 && chart.legend !== false;
    const lines = chart.kind === "line";
    const rows = Math.ceil(chart.series.reduce((sum, one) => sum + 36 + 6.6 * one.name.length, 0) / width); // of the legend, about
    const series = chart.series.map((one, at) => seriesOf(chart, one, at));
    if (chart.diagonal) {
      series.push({ type: "line", silent: true, symbol: "none", data: [[0, 0], [1, 1]], lineStyle: { color: css("--quiet"), type: "dotted", width: 1 } });
    }
    return {
      animation: false, backgroundColor: "transparent",
      textStyle: { fontFamily: css("--sans"), color: css("--ink") },
      grid: { left: chart.y.title ? 62 : 48, right: 18, top: many ? 14 + 20 * (rows > 3 ? 1 : rows) : 12, bottom: chart.x.title ? 42 : 26 },
      legend: many ? {
        type: rows > 3 ? "scroll" : "plain", top: 0, left: 0, icon: lines ? undefined : "roundRect",
        formatter: (name) => app.shorten(name, Math.max(12, Math.floor((width - 50) / 6.6))),
        itemWidth: lines ? 22 : 14, itemHeight: 4, itemGap: 10, textStyle: { color: css("--ink"), fontSize: 12 },
        data: chart.series.map((one) => one.name), pageIconColor: css("--accent"), pageTextStyle: { color: css("--quiet") },
      } : undefined,
      tooltip: {
        trigger: chart.kind === "scatter" ? "item" : "axis", confine: true, transitionDuration: 0,
        backgroundColor: css("--raised"), borderColor: css("--line"), textStyle: { color: css("--ink"), fontSize: 12 },
        axisPointer: { lineStyle: { color: css("--quiet") }, label: { show: false } }, formatter: tipOf(chart),
      },
      xAxis: axisOf(chart.x, true, chart.kind === "bars" ? chart.bins : null), yAxis: axisOf(chart.y, false, null), series,
    };
  }

  /** Return the figures of a chart as a Table. */
  function figuresOf(chart) {
    if (chart.kind === "scatter") {
      return {
        columns: [{ heading: "", numeric: false }, { heading: chart.x.title, numeric: true, format: chart.x.format }, { heading: chart.y.title, numeric: true, format: chart.y.format }],
        sections: chart.series.map((one) => one.x.map((x, row) => [(one.tips && one.tips[row]) || one.name, x, one.y[row]])),
      };
    }
    const columns = (first) => [first, ...chart.series.map((one) => ({ heading: one.name, numeric: true, format: chart.y.format }))];
    if (chart.kind === "bars") {
      return { columns: columns({ heading: chart.x.title, numeric: false }), sections: [chart.bins.map((name, row) => [name, ...chart.series.map((one) => one.y[row])])] };
    }
    const xs = [...new Set(chart.series.flatMap((one) => one.x))].sort((a, b) => a - b);
    const values = chart.series.map((one) => new Map(one.x.map((x, row) => [x, one.y[row]])));
    return { columns: columns({ heading: chart.x.title, numeric: true, format: chart.x.format }), sections: [xs.map((x) => [x, ...values.map((ys) => (ys.has(x) ? ys.get(x) : null))])] };
  }

  function summaryOf(chart) {
    if (chart.empty) return chart.empty;
    const say = (value) => formatted(value, chart.y.format);
    return chart.series.map((one) => {
      const ys = one.y.filter(known);
      if (!ys.length) return `${one.name}: no figures`;
      return chart.kind === "line" ? `${one.name}: from ${say(ys[0])} to ${say(ys[ys.length - 1])}`
        : `${one.name}: ${format.count(ys.length, "figure")} from ${say(Math.min(...ys))} to ${say(Math.max(...ys))}`;
    }).join("; ");
  }

  /** Return a chart as a figure.  `figure.update(chart)` draws other figures into it; `group` links
      the pointers of charts; `onpoint(x)` hears where a person clicked. */
  app.chart = function chart(spec, options) {
    const { group, onpoint } = options || {};
    const plot = h("div", { class: "plot", role: "img" });
    const holder = h("div", { class: "figures" });
    const details = h("details", { class: "as-table" }, h("summary", {}, "as a table"), holder);
    const notes = h("div", { class: "notes" });
    const figure = h("figure", { class: onpoint ? "chart leads" : "chart", "data-chart": spec.name || null },
      h("figcaption", {}, h("h3", {}, spec.title), spec.about ? h("p", { class: "about" }, spec.about) : null), plot, notes, details);
    let current = spec;
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
      const empty = Boolean(current.empty || !current.series.some((one) => one.y.some(known)));
      plot.classList.toggle("empty", empty);
      details.hidden = empty;
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
    details.addEventListener("toggle", table);
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
      app.scroll(title, h("table", { class: "heatmap" }, h("caption", { class: "unseen" }, title),
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
    const look = column.numeric ? "figure" : head && text.length <= MOST_UNBROKEN ? "unbroken" : null;
    return h(head ? "th" : "td", { scope: head ? "row" : null, class: look },
      more.href ? h("a", { href: more.href }, text) : text, more.note ? h("span", { class: "note" }, ` ${more.note}`) : null);
  }

  /** Return a Table: `{caption, columns, sections, bold, sortable}`. */
  app.table = function table(spec, options) {
    const { compact } = options || {};
    const sorted = { at: null, down: false };
    const bodies = h("table", {});
    const compare = (one, other) => {
      const [a, b] = [valueOf(one[sorted.at]), valueOf(other[sorted.at])];
      if (!known(a) || !known(b)) return known(a) ? -1 : known(b) ? 1 : 0; // what is not there comes last
      return (a < b ? -1 : a > b ? 1 : 0) * (sorted.down ? -1 : 1);
    };
    const sections = () => spec.sections.map((rows, section) => {
      const ordered = sorted.at === null ? rows : [...rows].sort(compare);
      return h("tbody", { class: spec.bold === section ? "totals" : null }, ordered.map((row) =>
        h("tr", {}, row.map((cell, at) => cellOf(cell, spec.columns[at], at === 0 && !spec.columns[0].numeric)))));
    });
    const heads = spec.columns.map((column, at) => {
      const head = h("th", { scope: "col", title: column.hint || null, class: column.numeric ? "figure" : null });
      if (!spec.sortable) return app.fill(head, [column.heading || h("span", { class: "unseen" }, "name")]);
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
    app.fill(bodies, [spec.caption ? h("caption", { class: compact ? "unseen" : null }, spec.caption) : null, h("thead", {}, h("tr", {}, heads)), sections()]);
    return app.scroll(compact ? `figures of ${spec.caption}` : spec.caption || "table", bodies, compact ? "compact" : "");
  };
})((window.consensuspr = window.consensuspr || {}));
