// Looks at the map as a user would: node check.mjs FOLDER-WITH-NODE_MODULES URL PICTURES
//
// The service at URL has the fleet `city`, in which 10,000 objects move; this makes a fleet of its own, whose objects
// are where they are put. Everything that is drawn is compared with what the service answers.

import { mkdirSync } from 'node:fs';
import { resolve } from 'node:path';

import { Watched, holds, same, until } from './browser.mjs';
import { editing, fences } from './fences.mjs';
import { crowd, pictures } from './crowd.mjs';
import { Service, drive, grid } from './service.mjs';

const [modules, url, out] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const fleet = `check-${Date.now().toString(36)}`;
const service = new Service(url, fleet);
const watched = await Watched.start(resolve(modules), url);

const names = (hits) => hits.map((hit) => hit.entity).sort();
const state = (page) => page.evaluate(() => document.getElementById('state').dataset.state);

/** The page with the fleet whose objects are at rest. */
async function still() {
  const now = Date.now() / 1000;
  await service.report([...grid(now), ...drive(now)]);
  const page = await watched.open(fleet);
  await until('the page is live', async () => (await state(page)) === 'live');
  await until('all objects are there', () =>
    page.evaluate(() => window.__tracks.store.size === 401 && window.__tracks.points.drawn.length === 401),
  );
  return page;
}

async function drawnIsAnswered(page) {
  const { box, drawn } = await page.evaluate(() => {
    const { map, points } = window.__tracks;
    const all = map.getBounds();
    return { box: [all.getWest(), all.getSouth(), all.getEast(), all.getNorth()], drawn: points.readBack() };
  });
  const { results } = await service.within(`bbox=${box}`);
  const inside = drawn.filter(({ lon, lat }) => lon >= box[0] && lon <= box[2] && lat >= box[1] && lat <= box[3]);
  same('objects on the map', names(inside), names(results));
  const known = new Map(results.map((hit) => [hit.entity, hit]));
  for (const { entity, lon, lat } of inside) {
    const hit = known.get(entity);
    const isThere = Math.abs(hit.lon - lon) < 1e-6 && Math.abs(hit.lat - lat) < 1e-6;
    holds(`${entity} is drawn at ${lon},${lat}, and is at ${hit.lon},${hit.lat}`, isThere);
  }
  // And seen: the middle of an object has its colour.
  const seen = await page.evaluate(async () => {
    const { map, store, points } = window.__tracks;
    const { lon, lat } = store.all.get('still-210');
    const at = map.project([lon, lat]);
    const pixel = await new Promise((done) => {
      map.once('render', () => {
        const { gl } = points;
        const [x, y] = [at.x, map.getCanvas().clientHeight - at.y].map((v) => Math.round(v * map.getPixelRatio()));
        const bytes = new Uint8Array(4);
        gl.readPixels(x, y, 1, 1, gl.RGBA, gl.UNSIGNED_BYTE, bytes);
        done([...bytes]);
      });
      map.triggerRepaint();
    });
    return { pixel, fresh: points.colors.fresh.map((v) => v * 255), stale: points.colors.stale.map((v) => v * 255) };
  });
  const between = seen.fresh.every((fresh, i) => {
    const [low, high] = [fresh, seen.stale[i]].sort((a, b) => a - b);
    return seen.pixel[i] >= low - 12 && seen.pixel[i] <= high + 12;
  });
  holds(`an object is drawn in its colour: ${JSON.stringify(seen)}`, between);
  return `${inside.length} objects`;
}

/** Draws with the mouse, and compares what is found with what the service answers of the same area. */
async function searchByDrawing(page) {
  const found = [];
  for (const [kind, corners] of [
    [
      'rectangle',
      [
        [600, 250],
        [900, 520],
      ],
    ],
    [
      'circle',
      [
        [800, 400],
        [800, 540],
      ],
    ],
    [
      'polygon',
      [
        [620, 300],
        [950, 330],
        [860, 600],
        [650, 560],
        [620, 300],
      ],
    ],
  ]) {
    await page.click(`#draw-${kind}`);
    for (const [x, y] of corners) {
      await page.mouse.move(x, y, { steps: 3 });
      await page.waitForTimeout(40);
      await page.mouse.click(x, y);
      await page.waitForTimeout(60);
    }
    const area = await until(`a ${kind} is searched`, () =>
      page.evaluate((type) => {
        const { area: now } = window.__tracks.search;
        return now?.type.toLowerCase() === type && now;
      }, kind),
    );
    const expected =
      area.type === 'Rectangle'
        ? await service.within(`bbox=${area.bbox}`)
        : area.type === 'Circle'
          ? await service.within(`circle=${area.center[1]},${area.center[0]},${area.radius}`)
          : await service.call('within?limit=10000', 'POST', area);
    const shown = await page.evaluate(() => ({
      listed: window.__tracks.search.hits.map((hit) => hit.entity).sort(),
      marked: [...window.__tracks.store.kinds.keys()].sort(),
      rows: document.querySelectorAll('#search-list li').length,
      said: document.getElementById('search-said').textContent,
    }));
    same(`hits of a ${kind}`, shown.listed, names(expected.results));
    same(`marks of a ${kind}`, shown.marked, names(expected.results));
    holds(`the ${kind} has some and not all`, shown.rows > 5 && shown.listed.length < 400);
    holds(`the list of a ${kind}: ${shown.said}`, shown.rows === Math.min(200, shown.listed.length));
    if (area.type === 'Rectangle') {
      // The corners are where the mouse was.
      const [west, north] = await page.evaluate(() => window.__tracks.map.unproject([600 - 348, 250]).toArray());
      holds(
        `the rectangle begins at ${west},${north}`,
        Math.abs(area.bbox[0] - west) < 1e-4 && Math.abs(area.bbox[3] - north) < 1e-4,
      );
    }
    found.push(`${kind} ${shown.listed.length}`);
  }
  return found.join(', ');
}

async function nearest(page) {
  await page.click('#draw-nearest');
  await page.mouse.click(760, 380);
  const hits = await until('the nearest are found', () =>
    page.evaluate(() => {
      const { hits: now } = window.__tracks.search;
      return now.length === 10 && now[0].distance !== undefined && now;
    }),
  );
  holds(
    'the nearest are sorted',
    hits.every((hit, i) => i === 0 || hits[i - 1].distance <= hit.distance),
  );
  await page.click('#search-clear');
  return `the nearest is ${hits[0].entity}, ${hits[0].distance.toFixed(0)} m`;
}

async function replayAtThreeTimes(page) {
  await page.click('#tab-here');
  // It is found by its name, although it is not seen.
  await page.fill('#filter', 'driver');
  await page.press('#filter', 'Enter');
  await until('it is found', () => page.evaluate(() => document.getElementById('details-list').children.length > 4));
  await page.click('#details-replay');
  await until('the track is there', () => page.evaluate(() => window.__tracks.replay.isOpen));
  const { parts } = await service.call('entities/driver/track');
  const points = parts.flat();
  same(
    'points of the replay',
    await page.evaluate(() => window.__tracks.replay.tracks[0].points.length),
    points.length,
  );
  for (const point of [points[3], points[30], points[58]]) {
    await page.evaluate((time) => {
      const slider = document.getElementById('replay-slider');
      slider.value = time;
      slider.dispatchEvent(new Event('input'));
    }, point.time);
    const drawn = await until('the place is drawn', () =>
      page.evaluate(({ lon, lat }) => {
        const { map } = window.__tracks;
        const [found] = map.queryRenderedFeatures({ layers: ['replay-circle'] });
        const at = found?.geometry.coordinates;
        return at && Math.abs(at[0] - lon) < 2e-5 && Math.abs(at[1] - lat) < 2e-5 && at;
      }, point),
    );
    holds(`it is drawn where it was: ${drawn}`, drawn);
    const [place] = await page.evaluate(() => window.__tracks.replay.places());
    same('its place', [place.lon, place.lat, place.isExact], [point.lon, point.lat, true]);
  }
  await page.evaluate(() => window.__tracks.replay.set(window.__tracks.replay.from));
  await page.click('[data-factor="60"]');
  const factor = await page.evaluate(async () => {
    const { replay } = window.__tracks;
    document.getElementById('replay-play').click();
    const [time, begun] = [replay.time, performance.now()];
    await new Promise((done) => setTimeout(done, 1000));
    document.getElementById('replay-play').click();
    return ((replay.time - time) * 1000) / (performance.now() - begun);
  });
  holds(`60× is ${factor}×`, factor > 30 && factor < 75);
  await page.click('#replay-close');
  await page.fill('#filter', '');
  return `3 times; 60× is ${factor.toFixed(0)}×`;
}

/** A lost connection is said, and mended. */
async function reconnects(page) {
  await page.evaluate(() => window.__tracks.map.jumpTo({ center: [10, 50.005], zoom: 13 }));
  await until('it is seen', () => page.evaluate(() => window.__tracks.store.all.has('still-000')));
  await watched.expecting(/ERR_INTERNET_DISCONNECTED/, async () => {
    await page.context().setOffline(true);
    await page.evaluate(() => {
      window.__tracks.live.area = null;
      window.__tracks.live.follow();
    });
    await until('the loss is said', async () => (await state(page)) === 'waiting');
    await page.context().setOffline(false);
    await until('it is live again', async () => (await state(page)) === 'live', 25);
    await page.waitForTimeout(300);
  });
  const moved = { entity: 'still-000', lat: 50.0203, lon: 10.0001, time: Date.now() / 1000 };
  await service.report([moved]);
  await until('the next report is drawn', () =>
    page.evaluate(() => window.__tracks.store.all.get('still-000').lat > 50.02),
  );
  return 'said, and mended';
}

/** Where tokens are wanted, the page asks for one, and sends it with everything. */
async function token() {
  const page = await watched.browser.newPage();
  const seen = [];
  await page.route('**/v1/**', (route) => {
    const sent = route.request().headers().authorization;
    seen.push(sent);
    if (sent === 'Bearer right') return route.continue();
    const body = JSON.stringify({
      type: '/problems/unauthorized',
      title: 'A valid token is missing',
      detail: 'send one',
      status: 401,
    });
    return route.fulfill({ status: 401, contentType: 'application/problem+json', body });
  });
  await page.goto(new URL(`map?fleet=${fleet}`, url).href);
  for (const text of ['wrong', 'right']) {
    await page.waitForSelector('#token[open]');
    await page.fill('#token-text', text);
    await page.click('#token button');
  }
  await until('it is live with a token', async () => (await state(page)) === 'live');
  holds('the wrong one was sent once and is forgotten', seen.filter((one) => one === 'Bearer wrong').length === 1);
  await page.close();
  return 'asked for, refused once, sent';
}

const steps = [];
let failed = null;
async function step(name, work) {
  const begun = Date.now();
  const said = await work();
  watched.check();
  steps.push(name);
  console.log(`  ${name}: ${said ?? 'good'} (${((Date.now() - begun) / 1000).toFixed(1)} s)`);
}

let page;
try {
  await step('opens', async () => {
    page = await still();
  });
  await step('what is drawn is what is answered', () => drawnIsAnswered(page));
  await step('search by drawing', () => searchByDrawing(page));
  await step('nearest', () => nearest(page));
  await step('a fence drawn', () => fences(page, service));
  await step('a fence changed, and its event', () => editing(page, service));
  await step('replay', () => replayAtThreeTimes(page));
  await step('a lost connection', () => reconnects(page));
  await page.context().close();
  await step('a token', token);
  await step('10,000 that move', () => crowd(watched, url));
  await step('pictures', () => pictures(watched, out));
  console.log(`  ${watched.requests} requests, none to elsewhere; the console was silent`);
} catch (error) {
  failed = error;
  const open = page && !page.isClosed() ? page : watched.browser.contexts().at(-1)?.pages()[0];
  await open?.screenshot({ path: `${out}/failed.png` }).catch(() => {});
  if (watched.wrong.length > 0) console.error(`  ${watched.wrong.slice(0, 10).join('\n  ')}`);
} finally {
  await watched.browser.close();
}
if (failed) {
  console.error(
    `error: after ${steps.at(-1) ?? 'nothing'}: ${failed.message}\n  what it looked like: ${out}/failed.png`,
  );
  process.exit(1);
}
