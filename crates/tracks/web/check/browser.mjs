// A headless browser that is watched: what its console says, what it asks for, what fails.

import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
/** What Chromium says of pictures it takes of a canvas without a graphics card. It is not the page's doing. */
const OF_THE_DRIVER = /GL Driver Message \(OpenGL, Performance, GL_CLOSE_PATH_NV, High\): GPU stall due to ReadPixels/;
const ARGUMENTS = [
  '--headless=new',
  '--no-sandbox',
  '--enable-unsafe-swiftshader',
  '--disable-dev-shm-usage',
  '--disable-background-networking',
];

export class Watched {
  static async start(modules, url) {
    const { chromium } = createRequire(join(modules, 'package.json'))('playwright-core');
    const folders = (process.env.PATH ?? '').split(delimiter);
    const found = folders.flatMap((folder) => NAMES.map((name) => join(folder, name))).find((file) => existsSync(file));
    if (!found) throw new Error('no Chromium in PATH: install it, for example: apt-get install chromium');
    const browser = await chromium.launch({ executablePath: found, args: ARGUMENTS });
    return new Watched(browser, new URL(url));
  }

  constructor(browser, url) {
    Object.assign(this, { browser, url, wrong: [], requests: 0, expected: null });
  }

  /** Opens a page of its own. */
  async open(fleet, options = {}) {
    const context = await this.browser.newContext({
      viewport: { width: 1280, height: 800 },
      colorScheme: 'light',
      ...options,
    });
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    page.on('console', (message) =>
      this.note(`console ${message.type()}: ${message.text()} (${message.location().url})`),
    );
    page.on('pageerror', (error) => this.note(`thrown: ${error.stack}`));
    page.on('request', (request) => {
      this.requests += 1;
      const at = new URL(request.url());
      const isOurs = at.host === this.url.host || ['data:', 'blob:'].includes(at.protocol);
      if (!isOurs) this.wrong.push(`fetched from elsewhere: ${request.url()}`);
    });
    page.on('requestfailed', (request) => {
      // A stream or a question that the page itself gave up.
      if (request.failure()?.errorText !== 'net::ERR_ABORTED')
        this.note(`failed: ${request.url()} ${request.failure()?.errorText}`);
    });
    page.on('response', (response) => {
      if (response.status() >= 400) this.note(`${response.status()}: ${response.url()}`);
    });
    await page.goto(new URL(`map?fleet=${fleet}`, this.url).href);
    return page;
  }

  note(text) {
    if (OF_THE_DRIVER.test(text) || this.expected?.test(text)) return;
    this.wrong.push(text);
  }

  /** While `work` goes on, what matches is expected. */
  async expecting(pattern, work) {
    this.expected = pattern;
    await work();
    this.expected = null;
  }

  /** Errors: anything that was wrong so far. */
  check() {
    if (this.wrong.length > 0) throw new Error(`the page is not silent:\n  ${this.wrong.slice(0, 10).join('\n  ')}`);
  }
}

/** Waits until `ask` answers with something true. */
export async function until(what, ask, seconds = 15) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const answer = await ask();
    if (answer) return answer;
    if (Date.now() > end) throw new Error(`not within ${seconds} s: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

/** Errors: two things are not equal. */
export function same(what, got, expected) {
  const [a, b] = [got, expected].map((value) => JSON.stringify(value));
  if (a !== b) throw new Error(`${what}:\n  got      ${a.slice(0, 600)}\n  expected ${b.slice(0, 600)}`);
}

/** Errors: it is not so. */
export function holds(what, isSo) {
  if (!isSo) throw new Error(what);
}
