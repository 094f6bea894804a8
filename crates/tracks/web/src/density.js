// Density: how many objects are in each cell of what is seen, counted by the service.

import { boxOf, boxRing } from './geometry.js';
import { count } from './format.js';
import { attempt, find, later, say } from './ui.js';

/** It is counted again this often. */
const AGAIN = 4000;
/** Cells are about so many pixels wide at least. */
const PIXELS = 22;

/** Characters of the cells' geohashes for a zoom of the map. */
export function precisionOf(zoom) {
  const pixels = (512 * 2 ** zoom) / 360;
  // The widths of cells, degrees, of one to eight characters.
  const widths = [45, 11.25, 1.40625, 0.3515625, 0.0439453125, 0.010986328125, 0.001373291015625, 0.00034332275390625];
  return Math.max(1, widths.filter((width) => width * pixels >= PIXELS).length);
}

export class Density {
  constructor(app) {
    this.app = app;
    this.button = find('show-density');
    this.button.addEventListener('click', () => this.set(!this.isOn));
    app.ground.map.on(
      'moveend',
      later(300, () => this.count()),
    );
    setInterval(() => this.count(), AGAIN);
  }

  set(isOn) {
    this.isOn = isOn;
    this.button.setAttribute('aria-pressed', isOn);
    find('legend').hidden = true;
    if (isOn) this.count();
    else this.app.ground.show('density', []);
    this.app.dim(isOn, 0.1);
  }

  async count() {
    if (!this.isOn || document.hidden) return;
    const { api, ground, fleet, tag } = this.app;
    const query = {
      bbox: boxOf(ground.bounds(), 0.1).join(','),
      precision: precisionOf(ground.map.getZoom()),
      tag: tag(),
    };
    this.stop?.abort();
    this.stop = new AbortController();
    const { signal } = this.stop;
    const answer = await attempt(() => api.json(api.of(fleet(), 'density'), { query, signal }));
    if (!answer || signal.aborted || !this.isOn) return;
    const most = Math.max(1, ...answer.cells.map((cell) => cell.count));
    this.cells = answer.cells;
    ground.show(
      'density',
      answer.cells.map((cell) => ({
        type: 'Feature',
        properties: { count: cell.count, share: 0.06 + 0.64 * Math.sqrt(cell.count / most) },
        geometry: { type: 'Polygon', coordinates: [boxRing(cell.bounds)] },
      })),
    );
    find('legend').hidden = false;
    say(find('legend-most'), count(most));
  }
}
