/* Where the documents come from: a server, or chunks inside a page that was kept.  Every view asks
       `source.get(path)`. */
"use strict";

const TOKEN = "consensuspr.token";

/** A document that cannot be had, with the sentence that says why. */
class SourceError extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

/** Documents of a server: `GET /api/…`. */
class LiveSource {
  token = () => sessionStorage.getItem(TOKEN);

  async ask(path, { headers, ...request } = {}) {
    const bearer = this.token() ? { Authorization: `Bearer ${this.token()}` } : {};
    let reply;
    try {
      reply = await fetch(path, { ...request, headers: { ...headers, ...bearer }, cache: "no-store" });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new SourceError("The server does not answer. The page tries again.", 0);
    }
    if (reply.ok) return reply;
    const found = await reply.json().catch(() => null);
    const sentence = (found && found.error) || `The server replied ${reply.status}.`;
    throw new SourceError(sentence, reply.status);
  }

  async get(path, signal) {
    return (await this.ask(`api/${path}`, { signal })).json();
  }

  async post(path, body) {
    const headers = { "Content-Type": "application/json" };
    return (await this.ask(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body) })).json();
  }

  /** Return an address from which the browser takes the rows of a filter as a file. */
  async csv(chosen) {
    const path = `samples.csv?${query(chosen)}`;
    if (!this.token()) return path; // written while it is made, however long it is
    const url = URL.createObjectURL(await (await this.ask(path)).blob());
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
  if (!unpacked.has(number)) {
    unpacked.set(number, unpack(document.getElementById(`chunk-${number}`).textContent));
  }
  return unpacked.get(number);
}

async function documentOf(name) {
  const index = await chunkOf(0);
  if (!Object.hasOwn(index, name)) {
    throw new SourceError("This page was kept without that view. consensuspr watch shows it.", 404);
  }
  return (await chunkOf(index[name]))[name];
}

class KeptSource {
  kept = true;

  async get(path) {
    const [name, words] = path.split("?");
    const query = new URLSearchParams(words || "");
    const pairs = [...query].filter(([key]) => !ASIDE.includes(key)).sort(([a], [b]) => (a < b ? -1 : 1));
    const found = await documentOf(pairs.length ? `${name}?${JSON.stringify(pairs)}` : name);
    if (!query.has("limit")) return found;
    const offset = Number(query.get("offset")) || 0;
    const page = (found.places || found.rows).slice(offset, offset + Number(query.get("limit")));
    const rows = found.places ? await documentOf("rows") : null;
    return { ...found, offset, rows: rows ? page.map((at) => rows[at]) : page };
  }
}

const setToken = (token) => sessionStorage.setItem(TOKEN, token);
const kept = Boolean(document.getElementById("chunk-0"));
document.body.classList.toggle("kept", kept); // hides controls that only a server can answer
const source = kept ? new KeptSource() : new LiveSource();
