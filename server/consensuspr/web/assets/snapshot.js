/* A page that was kept: its documents stand in it, packed into chunks, and nothing is asked for. */
(function (app) {
  "use strict";

  if (!document.getElementById("chunk-0")) return;
  document.body.classList.add("kept"); // hides what only a server can answer
  const ASIDE = ["limit", "offset", "whole"]; // lists and texts are kept whole
  const unpacked = new Map(); // chunk -> promise of its documents

  async function unpack(packed) {
    const bytes = Uint8Array.from(atob(packed), (sign) => sign.charCodeAt(0));
    const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(plain).text());
  }

  function chunkOf(number) {
    if (!unpacked.has(number)) unpacked.set(number, unpack(document.getElementById(`chunk-${number}`).textContent));
    return unpacked.get(number);
  }

  async function documentOf(name) {
    const index = await chunkOf(0);
    if (!Object.hasOwn(index, name)) throw new app.SourceError("This page was kept without that. consensuspr watch shows it.", 404);
    return (await chunkOf(index[name]))[name];
  }

  class KeptSource {
    kept = true;

    async get(path) {
      const [name, words] = path.split("?");
      const query = new URLSearchParams(words || "");
      const pairs = [...query].filter(([one]) => !ASIDE.includes(one)).sort(([a], [b]) => (a < b ? -1 : 1));
      const told = await documentOf(pairs.length ? `${name}?${JSON.stringify(pairs)}` : name);
      if (!query.has("limit")) return told;
      const offset = Number(query.get("offset")) || 0;
      const some = (told.places || told.rows).slice(offset, offset + Number(query.get("limit")));
      const rows = told.places ? await documentOf("rows") : null;
      return { ...told, offset, rows: rows ? some.map((at) => rows[at]) : some };
    }
  }

  app.source = new KeptSource();
})((window.consensuspr = window.consensuspr || {}));
