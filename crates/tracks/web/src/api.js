// Calls of the service: addresses, tokens, errors in words, and streams that mend themselves.

import { EventParser } from './events-parser.js';

const TOKEN = 'tracks-token';
/** A stream that says nothing for so long is taken for dead; the service says something every 15 s. */
const SILENCE = 45_000;

/** An answer that is an error, in words. */
export class Problem extends Error {
  constructor(status, body) {
    const { title, detail } = body ?? {};
    super(title && detail ? `${title}: ${detail}` : (title ?? `the server answered with ${status}`));
    this.status = status;
    this.kind = String(body?.type ?? '')
      .split('/')
      .at(-1);
  }
}

/** No answer came at all. */
export class NoConnection extends Error {
  constructor() {
    super('The server cannot be reached');
  }
}

export class Api {
  /** `askToken(wasWrong)` promises a token. */
  constructor(base, askToken) {
    this.base = base;
    this.askToken = askToken;
    this.token = sessionStorage.getItem(TOKEN) ?? '';
    this.asking = null;
    /** The server's clock less ours, ms. */
    this.skew = 0;
  }

  /** Now, by the server's clock, seconds since 1970. */
  now() {
    return (Date.now() + this.skew) / 1000;
  }

  /** The address of a call. `query`: members that are undefined are left out, lists come more than once. */
  url(path, query = {}) {
    const url = new URL(path, this.base);
    for (const [name, value] of Object.entries(query)) {
      for (const one of [value].flat()) {
        if (one !== undefined && one !== '') url.searchParams.append(name, one);
      }
    }
    return url;
  }

  /** The path of a fleet's calls. */
  of(fleet, ...parts) {
    return ['v1/fleets', fleet, ...parts].map((part, i) => (i === 0 ? part : encodeURIComponent(part))).join('/');
  }

  /** Calls, asks for a token where one is missing, and throws a Problem or NoConnection. */
  async call(path, { query, method = 'GET', body, signal, accept = 'application/json' } = {}) {
    for (;;) {
      const used = this.token;
      const headers = { accept };
      if (used) headers.authorization = `Bearer ${used}`;
      if (body !== undefined) headers['content-type'] = 'application/json';
      const sent = body === undefined ? undefined : JSON.stringify(body);
      let response;
      try {
        response = await fetch(this.url(path, query), { method, headers, body: sent, signal, cache: 'no-store' });
      } catch (error) {
        if (signal?.aborted) throw error;
        throw new NoConnection();
      }
      if (response.status === 401) {
        await this.renew(used);
        continue;
      }
      const date = Date.parse(response.headers.get('date') ?? '');
      // Whole seconds: small differences are not seen.
      if (Math.abs(date + 500 - Date.now() - this.skew) > 2000) this.skew = date + 500 - Date.now();
      if (!response.ok) throw new Problem(response.status, await response.json().catch(() => null));
      return response;
    }
  }

  async json(path, options) {
    const response = await this.call(path, options);
    return response.status === 204 ? null : response.json();
  }

  /** Asks for another token, once for all calls that wait. */
  async renew(used) {
    if (this.token !== used) return;
    this.asking ??= this.askToken(used !== '').then((token) => {
      this.token = token;
      sessionStorage.setItem(TOKEN, token);
      this.asking = null;
    });
    await this.asking;
  }

  /** All pages of a call, until there are `most` results. `each` gets every page. */
  async pages(path, { query, most = 100_000, each, ...more }) {
    let [cursor, total] = [undefined, 0];
    do {
      const page = await this.json(path, { ...more, query: { ...query, cursor } });
      total += page.results.length;
      each(page.results);
      cursor = page.cursor;
    } while (cursor && total < most);
    return { total, cursor };
  }

  /**
   * Follows a stream until `signal` aborts, and connects again whenever it ends. `on` has: `event(name, data, id)`,
   * `state(text, seconds)` with connecting, live or waiting.
   */
  async stream(path, { query, signal, on, after }) {
    let [last, tries] = [after, 0];
    while (!signal.aborted) {
      on.state('connecting');
      const dead = new AbortController();
      const stop = () => dead.abort();
      signal.addEventListener('abort', stop, { once: true });
      try {
        const response = await this.call(path, {
          query: { ...query, after: last },
          signal: dead.signal,
          accept: 'text/event-stream',
        });
        const parser = new EventParser();
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        for (;;) {
          const timer = setTimeout(stop, SILENCE);
          const { done, value } = await reader.read().finally(() => clearTimeout(timer));
          if (done) break;
          for (const { name, data, id } of parser.feed(value)) {
            if (id) last = id;
            if (name === 'hello') {
              tries = 0;
              on.state('live');
            }
            on.event(name, JSON.parse(data), id);
          }
        }
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Problem && error.status < 500 && error.status !== 429) throw error;
      } finally {
        signal.removeEventListener('abort', stop);
        dead.abort();
      }
      const seconds = backoff(tries);
      tries += 1;
      on.state('waiting', seconds);
      await pause(seconds * 1000, signal);
    }
  }
}

/** Seconds until the next try: longer each time, and never the same for all who were cut off together. */
export function backoff(tries, random = Math.random()) {
  return Math.min(20, 0.5 * 2 ** tries) * (0.75 + random / 2);
}

/** Waits, or ends early. */
export function pause(ms, signal) {
  return new Promise((done) => {
    const timer = setTimeout(done, ms);
    signal?.addEventListener(
      'abort',
      () => {
        clearTimeout(timer);
        done();
      },
      { once: true },
    );
  });
}
