// Fences by hand: one is drawn, one of its corners is dragged, and what enters the new part is seen in the list.

import { holds, same, until } from './browser.mjs';

/** Where the panel ends and the map begins, pixels. */
const LEFT = 348;

const place = (page, x, y) =>
  page.evaluate(([px, py]) => window.__tracks.map.unproject([px, py]).toArray(), [x - LEFT, y]);

export async function fences(page, service) {
  await page.click('#tab-fences');
  await page.click('#fence-new');
  await page.fill('#fence-field', 'gate');
  await page.fill('#fence-dwell', '600');
  await page.click('#fence-polygon');
  const corners = [
    [700, 200],
    [900, 200],
    [900, 320],
    [700, 320],
  ];
  for (const [x, y] of [...corners, corners[0]]) {
    await page.mouse.move(x, y, { steps: 3 });
    await page.waitForTimeout(40);
    await page.mouse.click(x, y);
    await page.waitForTimeout(60);
  }
  await until('it can be changed', () => page.evaluate(() => Boolean(window.__tracks.fences.change)));
  await page.click('#fence-form button[type=submit]');
  const { area, dwell } = await until('it is stored', () => service.call('fences/gate').catch(() => null));
  same('its kind', [area.type, dwell, area.coordinates[0].length], ['Polygon', 600, 5]);
  const [lon, lat] = await place(page, ...corners[0]);
  const isThere = area.coordinates[0].some(([a, b]) => Math.abs(a - lon) < 1e-4 && Math.abs(b - lat) < 1e-4);
  holds(`a corner is where the mouse was: ${JSON.stringify(area)}, ${lon},${lat}`, isThere);
  await until('it is listed', () =>
    page.evaluate(() => document.querySelector('#fence-list [data-fence=gate]') !== null),
  );
  return 'polygon, stored as it was drawn';
}

export async function editing(page, service) {
  await page.click('#fence-list [data-fence=gate]');
  // The map goes there first.
  await page.waitForTimeout(800);
  const before = (await service.call('fences/gate')).area.coordinates[0];
  const corner = before.reduce((best, one) => (one[0] - one[1] > best[0] - best[1] ? one : best));
  const from = await page.evaluate((at) => window.__tracks.map.project(at), corner);
  const to = { x: from.x + 90, y: from.y + 70 };
  await page.mouse.move(LEFT + from.x, from.y);
  await page.waitForTimeout(60);
  await page.mouse.down();
  for (let i = 1; i <= 8; i += 1) {
    await page.mouse.move(LEFT + from.x + (90 * i) / 8, from.y + (70 * i) / 8);
    await page.waitForTimeout(25);
  }
  await page.mouse.up();
  await page.waitForTimeout(100);
  const inside = await place(page, LEFT + from.x + 45, from.y + 34);
  const wanted = await place(page, LEFT + to.x, to.y);
  await page.click('#fence-form button[type=submit]');
  const after = await until('the change is stored', async () => {
    const now = (await service.call('fences/gate')).area.coordinates[0];
    return JSON.stringify(now) !== JSON.stringify(before) && now;
  });
  const isMoved = after.some(([lon, lat]) => Math.hypot(lon - wanted[0], lat - wanted[1]) < 2e-4);
  holds(`the corner is where it was dragged to: ${JSON.stringify(after)}, ${wanted}`, isMoved);
  const now = Date.now() / 1000;
  const [lon, lat] = inside;
  await service.report([{ entity: 'guest', lat: lat - 0.02, lon, time: now - 60 }]);
  await service.report([{ entity: 'guest', lat, lon, time: now }]);
  await until('its event is seen', () =>
    page.evaluate(() => {
      const first = document.querySelector('#event-list li');
      return first?.textContent.startsWith('guest entered gate');
    }),
  );
  const { events } = await service.call('events?after=0');
  same(
    'the events',
    events.map(({ kind, fence, entity }) => [kind, fence, entity]),
    [['enter', 'gate', 'guest']],
  );
  return 'a corner dragged; who enters there is in the list';
}
