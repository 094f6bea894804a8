// One object: what is known of it, its trail of the last minutes, and following it.

import { ago, count, course, length, position, span, speed } from './format.js';
import { attempt, find, make, say } from './ui.js';

/** A trail goes back so many seconds. */
const TRAIL = 600;

export class Details {
  constructor(app) {
    this.app = app;
    this.entity = null;
    find('details-close').addEventListener('click', () => this.close());
    find('details-replay').addEventListener('click', () =>
      app.replay([this.entity], app.api.now() - TRAIL, app.api.now()),
    );
    find('details-follow').addEventListener('click', () => this.follow(!this.isFollowing));
    find('details-go').addEventListener('click', () => this.go());
  }

  /** Chooses an object. `goThere`: brings it into view. */
  open(entity, goThere) {
    this.entity = entity;
    this.summary = null;
    this.latest = null;
    this.follow(false);
    find('details').hidden = false;
    say(find('details-name'), entity);
    this.app.mark();
    this.show();
    this.stop?.abort();
    this.stop = new AbortController();
    const { signal } = this.stop;
    attempt(() =>
      this.load(goThere, signal).catch((error) => {
        if (!this.latest && !signal.aborted && !this.app.store.all.has(entity)) this.close();
        throw error;
      }),
    );
  }

  async load(goThere, signal) {
    const { api, fleet, replay, store } = this.app;
    const { entity } = this;
    const latest = await api.json(api.of(fleet(), 'entities', entity), { signal });
    if (signal.aborted) return;
    store.put(latest);
    this.latest = latest;
    this.show();
    if (goThere) this.go();
    const from = latest.time - TRAIL;
    await this.app.trail(entity, from, signal);
    const summary = await api.json(api.of(fleet(), 'entities', entity, 'summary'), { query: { from }, signal });
    if (signal.aborted || replay === undefined) return;
    this.summary = summary;
    this.show();
  }

  /** Shows what is known now. */
  show() {
    if (!this.entity) return;
    const { api, store } = this.app;
    const now = store.all.get(this.entity) ?? this.latest;
    if (!now) return;
    const rows = [
      ['Seen', ago(api.now() - now.time)],
      ['Moves', [speed(now.speed), now.speed > 0.5 && course(now.course)].filter(Boolean).join(', ')],
      ['Is at', position(now.lon, now.lat)],
      ['Tags', (now.tags ?? []).join(', ')],
    ];
    const { summary } = this;
    if (summary) {
      rows.push([
        'Last 10 min',
        `${length(summary.distance)} in ${span(summary.duration)}, ${count(summary.points)} reports`,
      ]);
    }
    const list = find('details-list');
    const shown = rows.filter(([, text]) => text);
    if (list.children.length !== shown.length * 2) {
      list.replaceChildren(...shown.flatMap(() => [make('dt'), make('dd')]));
    }
    shown.forEach(([name, text], i) => {
      say(list.children[2 * i], name);
      say(list.children[2 * i + 1], text);
    });
    if (this.isFollowing) this.app.ground.map.easeTo({ center: [now.lon, now.lat], duration: 300 });
  }

  go() {
    const now = this.app.store.all.get(this.entity) ?? this.latest;
    if (now) this.app.ground.fit([now.lon, now.lat, now.lon, now.lat], Math.max(14, this.app.ground.map.getZoom()));
  }

  follow(isFollowing) {
    this.isFollowing = isFollowing;
    find('details-follow').setAttribute('aria-pressed', isFollowing);
  }

  close() {
    this.stop?.abort();
    this.entity = null;
    this.latest = null;
    this.follow(false);
    find('details').hidden = true;
    this.app.clearTrail();
    this.app.mark();
  }
}
