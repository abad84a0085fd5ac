/* Where the documents come from: a server, or chunks inside a page that was kept.  Every view asks
   `app.source.get(path)`. */
(function (app) {
  "use strict";

  const TOKEN = "consensuspr.token";

  /** A document that cannot be had, with the sentence that says why. */
  class SourceError extends Error {
    constructor(message, status) {
      super(message);
      this.status = status;
    }
  }

  /** Documents of a server that is there: `GET /api/…`. */
  class LiveSource {
    async ask(path, request) {
      const headers = { Accept: "application/json" };
      const token = sessionStorage.getItem(TOKEN);
      if (token) headers.Authorization = `Bearer ${token}`;
      if (request.body) headers["Content-Type"] = "application/json";
      let reply;
      try {
        reply = await fetch(path, { ...request, headers, cache: "no-store" });
      } catch (error) {
        if (error.name === "AbortError") throw error;
        throw new SourceError("The server does not answer. The page tries again.", 0);
      }
      const document = await reply.json().catch(() => null);
      if (!reply.ok) {
        throw new SourceError((document && document.error) || `The server replied ${reply.status}.`, reply.status);
      }
      return document;
    }

    get(path, signal) {
      return this.ask(`api/${path}`, { signal });
    }

    post(path, body) {
      return this.ask(`api/${path}`, { method: "POST", body: JSON.stringify(body) });
    }

    /** Return an address from which the browser takes the rows of a filter as a file. */
    async csv(chosen) {
      const path = `samples.csv?${app.query(chosen)}`;
      const token = sessionStorage.getItem(TOKEN);
      if (!token) return path; // written while it is made, however long it is
      const reply = await fetch(path, { headers: { Authorization: `Bearer ${token}` } });
      if (!reply.ok) {
        const found = await reply.json().catch(() => null);
        throw new SourceError((found && found.error) || `The server replied ${reply.status}.`, reply.status);
      }
      const url = URL.createObjectURL(await reply.blob());
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      return url;
    }
  }

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
    if (!Object.hasOwn(index, name)) throw new SourceError("This page was kept without that view. consensuspr watch shows it.", 404);
    return (await chunkOf(index[name]))[name];
  }

  class KeptSource {
    kept = true;

    async get(path) {
      const [name, words] = path.split("?");
      const query = new URLSearchParams(words || "");
      const pairs = [...query].filter(([one]) => !ASIDE.includes(one)).sort(([a], [b]) => (a < b ? -1 : 1));
      const found = await documentOf(pairs.length ? `${name}?${JSON.stringify(pairs)}` : name);
      if (!query.has("limit")) return found;
      const offset = Number(query.get("offset")) || 0;
      const some = (found.places || found.rows).slice(offset, offset + Number(query.get("limit")));
      const rows = found.places ? await documentOf("rows") : null;
      return { ...found, offset, rows: rows ? some.map((at) => rows[at]) : some };
    }
  }

  app.SourceError = SourceError;
  app.setToken = (token) => sessionStorage.setItem(TOKEN, token);
  const kept = Boolean(document.getElementById("chunk-0"));
  document.body.classList.toggle("kept", kept); // hides what only a server can answer
  app.source = kept ? new KeptSource() : new LiveSource();
})((window.consensuspr = window.consensuspr || {}));
