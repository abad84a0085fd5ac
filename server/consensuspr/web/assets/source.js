/* Where the documents come from.  Every view asks `app.source.get(path)` and knows nothing else. */
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
        throw new SourceError("The server does not answer. It is asked again while this page is open.", 0);
      }
      const document = await reply.json().catch(() => null);
      if (!reply.ok) {
        throw new SourceError((document && document.error) || `The server says ${reply.status}.`, reply.status);
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
        const told = await reply.json().catch(() => null);
        throw new SourceError((told && told.error) || `The server says ${reply.status}.`, reply.status);
      }
      const url = URL.createObjectURL(await reply.blob());
      setTimeout(() => URL.revokeObjectURL(url), 60000);
      return url;
    }
  }

  app.SourceError = SourceError;
  app.setToken = (token) => sessionStorage.setItem(TOKEN, token);
  app.source = new LiveSource();
})((window.consensuspr = window.consensuspr || {}));
