// What moves: the objects around what is seen, first as a list and then as they report.
//
// The stream is opened before the list is asked for, so that nothing is missed in between; whichever is newer counts.

import { boxOf, hasAll, isWithin } from './geometry.js';
import { attempt, later } from './ui.js';

/** So much more than what is seen is followed, as a share of it. */
const MARGIN = 0.3;
/** Objects that are shown at most. */
const MOST = 100_000;

export class Live {
  /** `on`: state(text, seconds), loaded(total, isAll), changed(). */
  constructor(api, store, ground, on) {
    Object.assign(this, { api, store, ground, on });
    this.tag = undefined;
    this.reports = 0;
    this.area = null;
    ground.map.on(
      'moveend',
      later(350, () => this.follow()),
    );
  }

  /** Begins with another fleet, or with another tag. */
  start(fleet, tag) {
    this.fleet = fleet;
    this.tag = tag;
    this.area = null;
    this.store.clear();
    this.follow();
  }

  /** Follows what is seen, unless it is followed already. */
  follow() {
    if (!this.fleet) return;
    const seen = boxOf(this.ground.bounds());
    const wide = (box) => box[3] - box[1];
    if (this.area && hasAll(this.area, seen) && wide(this.area) < 6 * wide(seen)) return;
    this.area = boxOf(this.ground.bounds(), MARGIN);
    this.stop?.abort();
    this.stop = new AbortController();
    this.run(this.area, this.stop.signal);
  }

  async run(area, signal) {
    const [query, bbox] = [{ tag: this.tag }, area.join(',')];
    const on = {
      state: (text, seconds) => this.on.state(text, seconds),
      event: (name, data) => {
        if (signal.aborted) return;
        if (name === 'hello') attempt(() => this.load(area, { ...query, bbox }, signal));
        else if (name === 'position') this.take(data);
        else if (name === 'gone') this.remove(data.entity);
      },
    };
    const path = this.api.of(this.fleet, 'stream');
    try {
      await this.api.stream(path, { query: { ...query, bbox, positions: true, events: false }, signal, on });
    } catch (error) {
      this.on.state('failed');
      await attempt(() => {
        throw error;
      });
    }
  }

  /** Asks for all that is there, and leaves out what is not there any more. */
  async load(area, query, signal) {
    const before = this.api.now();
    const there = new Set();
    const path = this.api.of(this.fleet, 'within');
    const each = (results) => {
      if (signal.aborted) return;
      for (const hit of results) {
        there.add(hit.entity);
        this.store.put(hit);
      }
      this.on.changed();
    };
    const { total, cursor } = await this.api.pages(path, {
      query: { ...query, limit: 10_000 },
      most: MOST,
      each,
      signal,
    });
    if (signal.aborted) return;
    for (const { entity, time, lon, lat } of [...this.store.all.values()]) {
      const isOld = !there.has(entity) && time < before - 5;
      if (isOld || !isWithin(area, lon, lat)) this.store.remove(entity);
    }
    this.on.loaded(total, !cursor);
    this.on.changed();
  }

  take(report) {
    this.reports += 1;
    if (this.store.put(report)) this.on.changed();
  }

  remove(entity) {
    this.store.remove(entity);
    this.on.changed();
  }

  /** Objects that are seen now. */
  seen() {
    const box = boxOf(this.ground.bounds());
    return [...this.store.all.values()].filter(({ lon, lat }) => isWithin(box, lon, lat));
  }
}
