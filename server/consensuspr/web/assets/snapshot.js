/* A page that was kept: its documents stand in it, or in a folder beside it, and nothing is asked
   for.  Chunks are unpacked when one of their documents is wanted.  Lists are kept whole, and what
   the server answers to a filter is found here by the same words. */
(function (app) {
  "use strict";

  const meta = document.querySelector('meta[name="consensuspr-snapshot"]');
  if (!meta) return;
  const folder = meta.content;
  const KEPT_CHUNKS = 8;

  async function unpack(packed) {
    const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(plain).text());
  }

  const arriving = new Map();
  /** Called by the files of the folder, each with its chunk. */
  app.chunk = function chunk(number, packed) {
    const waiting = arriving.get(number);
    arriving.delete(number);
    if (waiting) waiting(packed);
  };

  function fetched(number) {
    return new Promise((resolve, reject) => {
      const script = document.createElement("script");
      const name = `${encodeURIComponent(folder)}/${String(number).padStart(5, "0")}.js`;
      arriving.set(number, (packed) => {
        script.remove();
        resolve(packed);
      });
      script.onerror = () =>
        reject(new app.SourceError(`${name} is not there: the page and its folder belong together.`, 404));
      script.src = name;
      document.head.append(script);
    });
  }

  const unpacked = new Map(); // chunk -> promise of its documents, the latest ones last
  function chunkOf(number) {
    const known = unpacked.get(number);
    unpacked.delete(number);
    const block = document.getElementById(`chunk-${number}`);
    const found = known || (block ? Promise.resolve(block.textContent) : fetched(number)).then(unpack);
    unpacked.set(number, found);
    found.catch(() => unpacked.delete(number));
    // The list of documents stays.
    if (unpacked.size > KEPT_CHUNKS) unpacked.delete([...unpacked.keys()].find((one) => one !== 0));
    return found;
  }

  async function documentOf(path) {
    const index = await chunkOf(0);
    if (!Object.hasOwn(index, path)) throw new app.SourceError("This page was kept without that.", 404);
    return (await chunkOf(index[path]))[path];
  }

  // The words of a filter, as the server reads them.
  const TEXTS = ["split", "source", "model", "status", "diagnosis", "problem", "group"];
  const RANGES = { step: "step", ncr: "ncr", reward: "score", tokens: "num_tokens", guard: "guard" };
  const VERDICTS = { right: (row) => row.acc === 1, wrong: (row) => row.acc === 0, unknown: (row) => row.acc === null };
  const SUSPICIOUS = ["guarded", "wrong_high", "right_none"];
  const absent = (value) => value === null || value === undefined;

  /** Return whether a row is meant, its text aside. */
  async function condition(query) {
    const tests = [];
    const digest = query.get("dataset");
    if (digest) {
      const dataset = (await documentOf("datasets")).rows.find((one) => one.digest === digest);
      tests.push((row) => Boolean(dataset) && dataset.identities.includes(row.identity));
    }
    const runs = query.getAll("run").map(Number);
    if (runs.length) tests.push((row) => runs.includes(row.run));
    for (const name of TEXTS) {
      const allowed = query.getAll(name);
      if (allowed.length) tests.push((row) => allowed.includes(absent(row[name]) ? "" : row[name]));
    }
    for (const [name, column] of Object.entries(RANGES)) {
      const value = query.get(name);
      if (!value) continue;
      const [low, high] = value.includes("..") ? value.split("..", 2) : [value, value];
      const ends = [low === "" ? -Infinity : Number(low), high === "" ? Infinity : Number(high)];
      if (value === ".." || !(ends[0] <= ends[1])) throw new app.SourceError(`${name} must be N, N..M, N.. or ..M.`, 400);
      tests.push((row) => !absent(row[column]) && row[column] >= ends[0] && row[column] <= ends[1]);
    }
    const verdict = query.get("verdict");
    if (verdict) tests.push(VERDICTS[verdict]);
    const node = query.get("node");
    if (node) tests.push((row) => !absent(row.channels) && Number(node) < row.channels.length && row.channels[node] !== "-");
    const guarded = query.get("guarded");
    if (guarded) tests.push((row) => row.flags.includes("guarded") === (guarded === "1"));
    const kind = query.get("kind");
    if (kind) {
      const meant = kind === "suspicious" ? SUSPICIOUS : [kind];
      tests.push((row) => meant.some((flag) => row.flags.includes(flag)));
    }
    return (row) => tests.every((test) => test(row));
  }

  function sorted(rows, name, down, otherwise) {
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
    return rows.slice().sort((a, b) => {
      if (name && (absent(a[name]) || absent(b[name]))) return absent(a[name]) - absent(b[name]) || otherwise(a, b);
      return (name ? (down ? -order(a[name], b[name]) : order(a[name], b[name])) : 0) || otherwise(a, b);
    });
  }

  let all = null; // promise of all rows, the newest first
  function rows() {
    all ||= documentOf("samples").then(({ columns }) => {
      const names = Object.keys(columns);
      return columns.key.map((_, at) => Object.fromEntries(names.map((name) => [name, columns[name][at]])));
    });
    return all;
  }

  const page = (found, query) => {
    const offset = Number(query.get("offset") || 0);
    return { total: found.length, offset, rows: found.slice(offset, offset + Number(query.get("limit") || 50)) };
  };

  async function samples(query) {
    let found = (await rows()).map((row, at) => ({ ...row, at })).filter(await condition(query));
    const words = (query.get("q") || "").toLowerCase();
    let search = null;
    if (words) {
      const kept = [];
      for (const row of found) {
        const { text } = await documentOf(`sample/${row.run}/${row.key}`);
        if ((text || []).map((piece) => piece.text || "").join("").toLowerCase().includes(words)) kept.push(row);
      }
      search = { searched: found.length, candidates: found.length, complete: true, without_text: 0 };
      found = kept;
    }
    const down = query.get("desc") !== "0";
    const sort = query.get("sort");
    const newest = sort || down ? (a, b) => a.at - b.at : (a, b) => b.at - a.at;
    return { ...page(sorted(found, sort, down, newest), query), search };
  }

  const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
  const known = (found, name) => found.map((row) => row[name]).filter((value) => !absent(value));

  // As the server sums up the samples of a problem that are meant.
  function problemOf([problem, found]) {
    const steps = [...new Set(known(found, "step"))].sort((a, b) => a - b);
    const accAt = (step) => (absent(step) ? null : mean(known(found.filter((row) => row.step === step), "acc")));
    const [first, last] = [accAt(steps[0]), accAt(steps.at(-1))];
    const ncr = (acc) => mean(known(found.filter((row) => row.acc === acc), "ncr"));
    return {
      problem, source: known(found, "source")[0] ?? null, samples: found.length, acc: mean(known(found, "acc")), ncr: mean(known(found, "ncr")),
      ncr_right: ncr(1), ncr_wrong: ncr(0), reward: mean(known(found, "score")),
      first_acc: first, last_acc: last, change: absent(first) || absent(last) ? null : last - first,
    };
  }

  async function problems(query) {
    const named = (query.get("q") || "").toLowerCase();
    const ofProblem = Map.groupBy((await rows()).filter(await condition(query)), (row) => row.problem);
    const found = [...ofProblem].map(problemOf).filter((row) => row.problem.toLowerCase().includes(named));
    const byName = (a, b) => (a.problem < b.problem ? -1 : 1);
    return page(sorted(found, query.get("sort") || "samples", query.get("desc") !== "0", byName), query);
  }

  const EQUAL = 1e-6; // as the server tells differences from rounding
  const PARTS = 4;
  const CHANGED = {
    better: (row) => row.acc !== null && row.acc > EQUAL, worse: (row) => row.acc !== null && row.acc < -EQUAL,
    same: (row) => row.acc !== null && Math.abs(row.acc) <= EQUAL,
    only_a: (row) => row.b_samples === null, only_b: (row) => row.a_samples === null,
  };

  function sideOf(found, { rows: told }) {
    const identities = new Set(found.map((row) => row.identity));
    const guards = known(found, "guard");
    return {
      samples: found.length, problems: new Set(found.map((row) => row.problem)).size, acc: mean(known(found, "acc")), ncr: mean(known(found, "ncr")),
      ncr_wrong: mean(known(found.filter((row) => row.acc === 0), "ncr")), reward: mean(known(found, "score")),
      guarded: mean(guards.map((guard) => Number(guard < 1))), tokens: mean(known(found, "num_tokens")),
      datasets: told.filter((one) => one.identities.some((number) => identities.has(number))).map((one) => one.digest).sort(),
    };
  }

  function differenceOf(found, name) {
    const values = known(found, name);
    const middle = mean(values);
    const count = values.length;
    const spread = count > 1 ? Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (count - 1)) : null;
    return { mean: middle, error: spread === null ? null : spread / Math.sqrt(count), count };
  }

  // As the server lays two sides beside each other.
  async function compare(query) {
    const byStep = query.get("by") === "step";
    const sides = await Promise.all(["a", "b"].map(async (side) => {
      const own = new URLSearchParams();
      for (const [name, to] of [[side, "run"], [`${side}_model`, "model"], [`${side}_step`, "step"], ["source", "source"], ["split", "split"]]) {
        for (const value of query.getAll(name)) own.append(to, value);
      }
      return (await rows()).filter(await condition(own));
    }));
    const places = sides.map((side) => Map.groupBy(side, (row) => JSON.stringify([row.problem, byStep ? row.step : null])));
    const figures = (found, side) => (found
      ? { [`${side}_samples`]: found.length, [`${side}_acc`]: mean(known(found, "acc")), [`${side}_ncr`]: mean(known(found, "ncr")), [`${side}_reward`]: mean(known(found, "score")) }
      : { [`${side}_samples`]: null, [`${side}_acc`]: null, [`${side}_ncr`]: null, [`${side}_reward`]: null });
    const all = [...new Set(places.flatMap((side) => [...side.keys()]))].map((place) => {
      const [problem, step] = JSON.parse(place);
      const row = { problem, step, ...figures(places[0].get(place), "a"), ...figures(places[1].get(place), "b") };
      for (const name of ["acc", "ncr", "reward"]) {
        const [one, other] = [row[`a_${name}`], row[`b_${name}`]];
        row[name] = absent(one) || absent(other) ? null : other - one;
      }
      return row;
    });
    const parts = Array(2 * PARTS + 1).fill(0);
    for (const value of known(all, "acc")) parts[Math.sign(value) * Math.ceil(Math.abs(value) * PARTS - EQUAL) + PARTS] += 1;
    const named = (query.get("q") || "").toLowerCase();
    const change = query.get("change");
    const found = all.filter((row) => row.problem.toLowerCase().includes(named) && (!change || CHANGED[change](row)));
    const byName = (a, b) => (a.problem < b.problem ? -1 : a.problem > b.problem ? 1 : 0);
    const datasets = await documentOf("datasets");
    return {
      sides: { a: sideOf(sides[0], datasets), b: sideOf(sides[1], datasets) },
      counts: Object.fromEntries(Object.entries(CHANGED).map(([name, test]) => [name, all.filter(test).length])),
      differences: Object.fromEntries(["acc", "ncr", "reward"].map((name) => [name, differenceOf(all, name)])), parts,
      ...page(sorted(found, query.get("sort") || "acc", query.get("desc") !== "0", byName), query),
    };
  }

  async function dataset(path, query) {
    const { rows: known, ...told } = await documentOf(path);
    const named = (query.get("q") || "").toLowerCase();
    const one = query.get("problem");
    const found = known.filter((row) => (one ? row.id === one : row.id.toLowerCase().includes(named)));
    // As the server sorts by "gap": nodes that go with wrong answers more than with right ones first.
    const gap = (row) => Math.max(-1, ...row.nodes.map((node) =>
      (row.wrong ? node.by_wrong / row.wrong : 0) - (row.right ? node.by_right / row.right : 0)));
    if (query.get("sort") === "gap") found.sort((a, b) => gap(b) - gap(a) || (a.id < b.id ? -1 : 1));
    return { ...told, ...page(found, query) };
  }

  // Of a document that there are several of: what tells them apart.
  const TOLD_BY = { curves: ["model", "source", "split"], group: ["group", "model", "problem", "split", "step"], problem: ["dataset"] };

  // Of a page that holds a report and nothing else.
  const ALONE = { revision: 0, runs: [], report: true, datasets_loading: false, left_out: [], kinds: [], sorts: [] };

  class KeptSource {
    kept = true;

    async get(path) {
      const [name, words] = path.split("?");
      const query = new URLSearchParams(words || "");
      const kind = name.split("/")[0];
      if (name === "state" && !Object.hasOwn(await chunkOf(0), name)) return ALONE;
      if (name === "samples") return samples(query);
      if (name === "problems") return problems(query);
      if (name === "compare") return compare(query);
      if (kind === "dataset") return dataset(name, query);
      const pairs = (TOLD_BY[kind] || []).map((one) => [one, query.get(one)]).filter(([, value]) => value);
      const stored = pairs.length ? `${name}?${JSON.stringify(pairs)}` : name;
      // What there is one of stands under its name alone.
      return documentOf(kind === "problem" && !Object.hasOwn(await chunkOf(0), stored) ? name : stored);
    }

    async csv(chosen) {
      const found = await samples(new URLSearchParams(app.query({ ...chosen, offset: 0, limit: 1000000000 })));
      const names = Object.keys((await documentOf("samples")).columns).filter((name) => name !== "identity");
      const lines = [names, ...found.rows.map((row) => names.map((name) => row[name]))];
      const text = lines.map((line) => `${line.map(cell).join(",")}\n`).join("");
      return URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    }
  }

  // As the server writes it: a text that a spreadsheet would take for a formula gets an apostrophe.
  const FORMULA = /^ *[=+\-@\t\r\n＝＋－＠]/;
  function cell(value) {
    if (absent(value)) return "";
    if (Array.isArray(value)) value = value.join(" ");
    if (typeof value !== "string") return String(value);
    const text = FORMULA.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  app.source = new KeptSource();
})((window.consensuspr = window.consensuspr || {}));
