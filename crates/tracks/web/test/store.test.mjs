// Objects in their places of typed arrays.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ORDERS } from '../src/list.js';
import { KIND, STRIDE, Store, project, unproject } from '../src/store.js';

const report = (entity, lon, time = 1, more = {}) => ({ entity, lon, lat: 10, time, ...more });

test('places are those of the newest reports, whatever is removed', () => {
  const store = new Store(0);
  store.moveOrigin(project(0, 10));
  const truth = new Map();
  let seed = 1;
  const random = (n) => {
    seed = (seed * 48271) % 2147483647;
    return seed % n;
  };
  for (let i = 0; i < 20_000; i += 1) {
    const entity = `e${random(3000)}`;
    if (random(4) === 0) {
      store.remove(entity);
      truth.delete(entity);
    } else {
      const [lon, time] = [random(100) / 10 - 5, random(1000)];
      const isNew = !(truth.get(entity)?.time > time);
      assert.equal(store.put(report(entity, lon, time)), isNew);
      if (isNew) truth.set(entity, { lon, time });
    }
  }
  assert.equal(store.size, truth.size);
  store.names.forEach((entity, place) => {
    assert.equal(store.all.get(entity).place, place);
    const [lon] = unproject(
      store.values[place * STRIDE] + store.origin[0],
      store.values[place * STRIDE + 1] + store.origin[1],
    );
    assert.ok(Math.abs(lon - truth.get(entity).lon) < 1e-5);
    assert.equal(store.values[place * STRIDE + 2], truth.get(entity).time);
  });
});

test('marks stay with their objects', () => {
  const store = new Store(0);
  ['a', 'b', 'c'].forEach((entity, i) => store.put(report(entity, i)));
  store.mark(new Map([['c', KIND.hit]]));
  store.remove('a');
  const kind = (entity) => store.values[store.all.get(entity).place * STRIDE + 4];
  assert.deepEqual([kind('b'), kind('c')], [KIND.plain, KIND.hit]);
  store.put(report('c', 5, 2));
  assert.equal(kind('c'), KIND.hit);
  store.mark(new Map());
  assert.equal(kind('c'), KIND.plain);
});

test('the copy of the world that is nearest is drawn', () => {
  const store = new Store(0);
  store.put(report('a', -179.9));
  store.moveOrigin(project(179.9, 10));
  assert.ok(Math.abs(store.values[0] - 0.2 / 360) < 1e-6);
});

test('orders', () => {
  const all = [report('b', 0, 5, { speed: 1 }), report('a', 0, 9), report('c', 0, 5, { speed: 7 })];
  const names = (order) =>
    all
      .toSorted(ORDERS[order])
      .map(({ entity }) => entity)
      .join('');
  assert.deepEqual([names('name'), names('newest'), names('speed')], ['abc', 'abc', 'cba']);
});
