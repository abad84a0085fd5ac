/* Charts, drawn from the values of consensuspr.web.figures.

       Apache ECharts draws into SVG, so that a chart is text, prints, and can be looked into; beside
       every chart stand its figures as a table. */
"use strict";

const SERIES = 8; // colours that page.css names; further series repeat them dashed
const SYMBOLS = ["circle", "rect", "triangle", "diamond"];
const COLORS = { right: "--right", wrong: "--wrong", third: "--series-4", plain: "--series-0" };
const MAX_SYMBOLS = 40;
const CHAR_PX = 6.6; // of a legend, about
const MOST_BROKEN = 5;
const drawn = new Set();

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const place = (look, at) => (typeof look === "number" ? look
  : Math.max(0, Object.keys(COLORS).indexOf(look || "")) || at);

function axisOf(axis, isX, names, width) {
  const line = { lineStyle: { color: css("--line") } };
  const whole = axis.format && axis.format.decimals === 0;
  const ticks = axis.ticks && new Map(axis.ticks);
  const label = { color: css("--quiet"), fontSize: 11, hideOverlap: true };
  // Few names are broken into lines; of many, those are left out that have no room.
  if (names && names.length <= MOST_BROKEN) {
    Object.assign(label, { interval: 0, width: 0.8 * width / names.length, overflow: "break", lineHeight: 13 });
  }
  if (ticks) {
    label.customValues = [...ticks.keys()];
    label.formatter = (value) => ticks.get(value) || "";
  } else if (!names) {
    label.formatter = (value) => formatted(value, { ...axis.format, decimals: whole ? 0 : null });
  }
  return {
    name: axis.title || "", nameLocation: "middle", nameGap: !isX ? 46 : names ? 34 : 27,
    nameTextStyle: { color: css("--quiet"), fontSize: 12 },
    axisLine: line, axisTick: { show: false }, splitLine: { show: !isX, ...line },
    axisLabel: label, type: names ? "category" : "value", data: names || undefined,
    // From the first to the last value, unless the chart says otherwise.
    min: known(axis.low) ? axis.low : isX && !names ? "dataMin" : undefined,
    max: known(axis.high) ? axis.high : isX && !names ? "dataMax" : undefined,
    scale: !isX && axis.fromZero !== true,
    minInterval: whole ? 1 / (axis.format.scale || 1) : undefined,
  };
}

const tipOf = (chart) => (given) => {
  const points = [given].flat().filter((point) => point.data && known(point.data.shown));
  if (!points.length) return "";
  const [{ name, data }] = points;
  if (data.tip) return h("div.tip", h("p", data.tip));
  const title = chart.kind === "bars" ? name
    : `${chart.x.title || ""} ${formatted(data.value[0], chart.x.format)}`;
  return h("div.tip", h("p", title), h("table", points.map((point) => h("tr", 
      h("td", h("i.dot", { vars: { color: point.color } })),
      h("td", point.seriesName), h("td.figure", point.data.shown)))));
};

function seriesOf(chart, line, at) {
  const index = place(line.look, at);
  const point = (value, row) => ({
    value, shown: known(line.y[row]) ? formatted(line.y[row], chart.y.format) : null,
    tip: line.tips && line.tips[row], href: line.hrefs && line.hrefs[row],
  });
  const common = {
    name: line.name, color: css(COLORS[line.look] || `--series-${index % SERIES}`),
    symbol: SYMBOLS[index % SYMBOLS.length], emphasis: { disabled: true },
  };
  if (chart.kind === "bars") {
    const pale = { opacity: 0.55, borderColor: css("--wrong"), borderWidth: 1.5 };
    return {...common, type: "bar", barGap: "8%", barCategoryGap: "22%", data: line.y.map(point),
      itemStyle: line.look === "wrong" ? pale : undefined,
    };
  }
  const data = line.x.map((x, row) => point([x, line.y[row]], row));
  if (chart.kind === "scatter") {
    return {...common, type: "scatter", symbolSize: 8, itemStyle: { opacity: 0.65 },
      cursor: line.hrefs ? "pointer" : "default", data,
    };
  }
  const dashed = index >= SERIES || line.look === "wrong" ? "dashed" : "solid";
  return {...common, type: "line", connectNulls: false, showSymbol: data.length <= MAX_SYMBOLS,
    symbolSize: 5, data, lineStyle: { width: 2, type: line.dashed || dashed },
  };
}

function optionOf(chart, width) {
  const many = chart.series.length > 1 && chart.legend !== false;
  const length = chart.series.reduce((sum, { name }) => sum + 36 + CHAR_PX * name.length, 0);
  const rows = Math.ceil(length / width); // of the legend
  const [ink, quiet] = [css("--ink"), css("--quiet")];
  const series = chart.series.map((line, at) => seriesOf(chart, line, at));
  if (chart.diagonal) {
    series.push({
      type: "line", silent: true, symbol: "none", data: [[0, 0], [1, 1]],
      lineStyle: { color: quiet, type: "dotted", width: 1 },
    });
  }
  return {
    animation: false, backgroundColor: "transparent",
    textStyle: { fontFamily: css("--sans"), color: ink },
    grid: {
      left: chart.y.title ? 62 : 48, right: 18, bottom: (chart.x.title ? 42 : 26) + (chart.kind === "bars" ? 8 : 0),
      top: many ? 14 + 20 * (rows > 3 ? 1 : rows) : 12,
    },
    legend: many ? {
      type: rows > 3 ? "scroll" : "plain", top: 0, left: 0,
      icon: chart.kind === "line" ? undefined : "roundRect",
      formatter: (name) => shorten(name, Math.max(12, Math.floor((width - 50) / CHAR_PX))),
      itemWidth: chart.kind === "line" ? 22 : 14, itemHeight: 4, itemGap: 10,
      textStyle: { color: ink, fontSize: 12 }, data: chart.series.map(({ name }) => name),
      pageIconColor: css("--accent"), pageTextStyle: { color: quiet },
    } : undefined,
    tooltip: {
      trigger: chart.kind === "scatter" ? "item" : "axis", confine: true, transitionDuration: 0,
      backgroundColor: css("--raised"), borderColor: css("--line"),
      textStyle: { color: ink, fontSize: 12 }, formatter: tipOf(chart),
      axisPointer: { lineStyle: { color: quiet }, label: { show: false } },
    },
    xAxis: axisOf(chart.x, true, chart.kind === "bars" ? chart.bins : null, width),
    yAxis: axisOf(chart.y, false, null), series,
  };
}

/** Return the figures of a chart as a table: a row for each point, bin or x. */
function figuresOf({ kind, title, x, y, series, bins }) {
  const column = (heading, style, cell) => ({
    title: heading, numeric: true, cell: (row) => formatted(cell(row), style),
  });
  if (kind === "scatter") {
    return table({
      label: `figures of ${title}`, frame: "compact",
      columns: [{ title: "point", cell: ({ tip }) => tip },
        column(x.title, x.format, (row) => row.x), column(y.title, y.format, (row) => row.y),
      ],
      rows: series.flatMap((line) => line.x.map((value, at) => (
        { tip: (line.tips && line.tips[at]) || line.name, x: value, y: line.y[at] }))),
    });
  }
  const xs = bins && bins.length ? bins
    : [...new Set(series.flatMap((line) => line.x))].sort((a, b) => a - b);
  const values = series.map((line) => new Map(xs === bins
    ? line.y.map((value, at) => [bins[at], value]) : line.x.map((at, row) => [at, line.y[row]])));
  return table({
    label: `figures of ${title}`, frame: "compact", rows: xs,
    columns: [{ ...column(x.title, x.format, (at) => at), numeric: xs !== bins },
      ...series.map(({ name }, at) => column(name, y.format, (row) => values[at].get(row))),
    ],
  });
}

function summaryOf(chart) {
  if (chart.empty) return chart.empty;
  const say = (value) => formatted(value, chart.y.format);
  return chart.series.map(({ name, y }) => {
    const values = y.filter(known);
    const [low, high] = chart.kind === "line" ? [values[0], values[values.length - 1]]
      : [Math.min(...values), Math.max(...values)];
    return values.length ? `${name}: from ${say(low)} to ${say(high)}` : `${name}: no figures`;
  }).join("; ");
}

/** Return a chart as a figure.  `figure.update(chart)` draws other figures into it; `group` links
    the pointers of charts; `onpoint(x)` is called where a person clicks. */
function chart(spec, { group, onpoint } = {}) {
  const plot = h("div.plot", { role: "img" });
  const holder = h("div");
  const details = h("details.as-table", h("summary", "as a table"), holder);
  const figure = h("figure", { class: onpoint ? "chart leads" : "chart", "data-chart": spec.name || null },
    h("figcaption", h("h3", spec.title), spec.about ? hint(spec.about) : null),
    plot, (spec.notes || []).map((note) => hint(note)), details);
  let current = spec;
  let instance = null;

  const fillTable = () => put(holder, details.open ? figuresOf(current) : null);
  const drop = () => {
    if (instance) instance.dispose();
    instance = null;
  };
  const begin = () => {
    plot.textContent = "";
    instance = window.echarts.init(plot, null, { renderer: "svg" });
    if (group) {
      instance.group = group;
      window.echarts.connect(group);
    }
    instance.on("click", ({ data }) => {
      if (data && data.href && data.href.startsWith("#")) location.hash = data.href;
    });
    instance.getZr().on("click", ({ offsetX, offsetY }) => {
      const at = [offsetX, offsetY];
      if (!onpoint || !instance.containPixel("grid", at)) return;
      onpoint(instance.convertFromPixel({ gridIndex: 0 }, at)[0]);
    });
  };
  const draw = () => {
    plot.setAttribute("aria-label", `${current.title}. ${summaryOf(current)}`);
    const empty = Boolean(current.empty || !current.series.some(({ y }) => y.some(known)));
    plot.classList.toggle("empty", empty);
    details.hidden = empty;
    if (empty) {
      drop();
      plot.textContent = current.empty || "nothing to draw yet";
    } else if (plot.isConnected && plot.clientWidth) {
      if (!instance) begin();
      instance.setOption(optionOf(current, plot.clientWidth), { notMerge: true });
    }
  };
  const resized = new ResizeObserver(() => {
    if (instance && plot.isConnected) instance.resize();
    draw();
  });
  details.addEventListener("toggle", fillTable);
  Object.assign(figure, {
    update(next) {
      current = next;
      draw();
      fillTable();
    },
    redraw() {
      drop();
      draw();
    },
    dispose() {
      resized.disconnect();
      drawn.delete(figure);
      drop();
    },
  });
  resized.observe(plot);
  drawn.add(figure);
  draw();
  return figure;
}

/** Return shares as a table with shaded cells: a row for each name, a column for each x. */
const heat = ({ name, title, about, xTitle, xs, rows }) => h("figure.chart.heat", {
  "data-chart": name,
}, h("figcaption", h("h3", title), hint(about)), table({
  label: title, look: "heatmap", rows,
  columns: [{ title: xTitle, head: true, cell: ([head]) => head }, ...xs.map((x, at) => ({
    title: format.int(x), look: ([, values]) => ({ class: "shade", vars: { share: values[at] || 0 } }),
    cell: ([, values]) => (known(values[at]) ? Math.round(100 * values[at]) : format.NONE),
  }))],
}));

/** Draw all charts again: the colours are others. */
const recolor = () => drawn.forEach((figure) => figure.redraw());

/** Dispose of the charts of a view that is gone. */
const disposeCharts = () =>
  [...drawn].filter((figure) => !figure.isConnected).forEach((figure) => figure.dispose());
