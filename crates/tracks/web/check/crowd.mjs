// The city: 10,000 objects that move, and pictures of the page.

import { join } from 'node:path';

import { holds, until } from './browser.mjs';

const OBJECTS = 10_000;
/** The least that movement leaves of the frames a second of an empty map: both are drawn by software, on the processors
 * that run the service, so that the frames themselves say as much of the machine as of the page. */
const FRAMES = 0.4;

const live = (page) =>
  until('the city is live', () => page.evaluate(() => document.getElementById('state').dataset.state === 'live'), 30);

/** Frames a second of the map without objects, drawn as fast as the browser can. */
const empty = (page, ms) =>
  page.evaluate(async (ms) => {
    const { frames, live: moving, map, points } = window.__tracks;
    const nothing = () => {};
    const [take, again] = [moving.take.bind(moving), () => map.triggerRepaint()];
    Object.assign(points, { prerender: nothing, render: nothing });
    moving.take = nothing;
    map.on('render', again);
    again();
    frames.reset();
    await new Promise((done) => setTimeout(done, ms));
    map.off('render', again);
    moving.take = take;
    delete points.prerender;
    delete points.render;
    return frames.measure().perSecond;
  }, ms);

export async function crowd(watched) {
  const page = await watched.open('city');
  await live(page);
  await until(
    'all objects are drawn',
    () => page.evaluate((n) => window.__tracks.points.drawn.length >= n, OBJECTS),
    30,
  );
  const bare = await empty(page, 3000);
  const [before, began] = [await page.evaluate(() => window.__tracks.store.values.slice(0, 50_000).join()), Date.now()];
  const seconds = 6;
  const measured = await page.evaluate(async (ms) => {
    const { frames, live: moving, map, store } = window.__tracks;
    const newest = () => [...store.all.values()].map(({ time }) => time);
    const then = newest();
    frames.reset();
    let reports = 0;
    const take = moving.take.bind(moving);
    moving.take = (report) => {
      reports += 1;
      take(report);
    };
    await new Promise((done) => setTimeout(done, ms));
    moving.take = take;
    const now = newest();
    return {
      ...frames.measure(),
      reports,
      moved: now.filter((time, i) => time !== then[i]).length,
      zoom: map.getZoom(),
    };
  }, seconds * 1000);
  const after = await page.evaluate(() => window.__tracks.store.values.slice(0, 50_000).join());
  holds('they move', before !== after && measured.moved > OBJECTS / 4);
  const drawn = `${measured.perSecond.toFixed(1)} frames a second, ${bare.toFixed(1)} without objects`;
  holds(`${drawn}: a ratio of ${FRAMES} is the least`, measured.perSecond >= FRAMES * bare);
  await page.context().close();
  const rate = (measured.reports * 1000) / (Date.now() - began);
  return (
    `${measured.perSecond.toFixed(1)} frames/s (${bare.toFixed(1)} without objects), median ${measured.median.toFixed(0)} ms, 95 of 100 within ` +
    `${measured.p95.toFixed(0)} ms, ${rate.toFixed(0)} reports/s, ${measured.moved} have moved`
  );
}

/** Waits until a page has what moves, and has drawn it. */
async function look(page) {
  await live(page);
  await until('objects are drawn', () => page.evaluate(() => window.__tracks.points.drawn.length > 0));
  await page.waitForTimeout(1500);
}

export async function pictures(watched, out) {
  const near = '#14.2/59.3293/18.0686';
  const shot = (page, name) => page.screenshot({ path: join(out, `${name}.png`) });
  const light = await watched.open('city', {}, near);
  await look(light);
  await shot(light, 'light');
  await light.click('#tab-fences');
  await light.click('#fence-list [data-fence=harbour]');
  await light.waitForTimeout(2000);
  await shot(light, 'fence');
  await light.context().close();

  const dark = await watched.open('city', { colorScheme: 'dark' }, near);
  await look(dark);
  await dark.click('#here-list li:nth-child(3) button');
  await dark.click('#details-replay');
  await until('the track is there', () => dark.evaluate(() => window.__tracks.replay.isOpen));
  await dark.evaluate(() => {
    const { replay } = window.__tracks;
    replay.set(replay.from + (replay.to - replay.from) * 0.7);
  });
  await dark.waitForTimeout(2000);
  await shot(dark, 'dark');
  await dark.click('#replay-close');
  await dark.click('#details-close');
  await dark.click('#show-density');
  await until('cells are there', () => dark.evaluate(() => window.__tracks.density.cells?.length > 0));
  await dark.waitForTimeout(1000);
  await shot(dark, 'density');
  await dark.context().close();

  const phone = { viewport: { width: 390, height: 844 }, deviceScaleFactor: 2, hasTouch: true, isMobile: true };
  for (const colorScheme of ['light', 'dark']) {
    const page = await watched.open('city', { ...phone, colorScheme }, '#14.5/59.3293/18.0686');
    await look(page);
    if (colorScheme === 'dark') {
      await page.tap('#tab-fences');
      await page.waitForTimeout(600);
    }
    await shot(page, `phone-${colorScheme}`);
    const isWide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    holds('nothing is wider than the phone', !isWide);
    await page.context().close();
  }
  return `in ${out}`;
}
