// Lists of objects: rows that are buttons, made once and filled again, so that the keyboard keeps its place.

import { make, say } from './ui.js';

/** Rows at most: more are counted. */
export const ROWS = 200;

/** The order of objects by what was chosen. */
export const ORDERS = {
  name: (a, b) => (a.entity < b.entity ? -1 : a.entity > b.entity ? 1 : 0),
  newest: (a, b) => b.time - a.time || ORDERS.name(a, b),
  speed: (a, b) => (b.speed ?? -1) - (a.speed ?? -1) || ORDERS.name(a, b),
};

export class List {
  /** `chosen(entity)` is called with the name of a row that was pressed. */
  constructor(element, more, chosen) {
    Object.assign(this, { element, more });
    this.rows = [];
    element.addEventListener('click', (event) => {
      const row = event.target.closest('button');
      if (row) chosen(row.dataset.entity);
    });
    // Arrows go from row to row.
    element.addEventListener('keydown', (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      const at = this.rows.findIndex((row) => row.button === document.activeElement);
      if (!by || at < 0) return;
      event.preventDefault();
      this.rows[at + by]?.button.focus();
    });
  }

  /** Shows rows of `{entity, text, side}`; `total`: how many there are in all. */
  show(rows, total = rows.length, chosen = undefined) {
    const shown = Math.min(rows.length, ROWS);
    while (this.rows.length < shown) {
      const [name, text, side] = ['name', 'text', 'side'].map((part) => make('span', { class: part }));
      const button = make(
        'button',
        { class: 'row', type: 'button' },
        make('span', { class: 'main' }, name, text),
        side,
      );
      this.rows.push({ button, name, text, side, item: make('li', {}, button) });
      this.element.append(this.rows.at(-1).item);
    }
    while (this.rows.length > shown) this.rows.pop().item.remove();
    for (let i = 0; i < shown; i += 1) {
      const [row, { entity, label, text, side }] = [this.rows[i], rows[i]];
      if (row.button.dataset.entity !== entity) row.button.dataset.entity = entity;
      const isChosen = entity === chosen ? 'true' : 'false';
      if (row.button.getAttribute('aria-current') !== isChosen) row.button.setAttribute('aria-current', isChosen);
      say(row.name, label ?? entity);
      say(row.text, text ?? '');
      say(row.side, side ?? '');
    }
    if (this.more) say(this.more, total > shown ? `and ${(total - shown).toLocaleString('en')} more` : '');
  }
}
