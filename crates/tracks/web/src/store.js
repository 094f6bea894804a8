// The objects that the map knows, in places of typed arrays that the graphics card takes as they are.
//
// A report changes the place of its object in memory and nothing else; what was changed since is drawn with the next
// frame, however many reports came meanwhile. Positions are kept in Mercator's projection, 0 to 1, as the map has them.

/** Numbers of a place: x and y beside the origin, time beside the base, course in radians or −10, kind. */
export const STRIDE = 5;
export const KIND = { plain: 0, hit: 1, chosen: 2 };

/** Mercator's projection: 0 to 1 from west to east and from north to south. */
export function project(lon, lat) {
  const sin = Math.sin((Math.max(-85.0511, Math.min(85.0511, lat)) * Math.PI) / 180);
  return [(lon + 180) / 360, 0.5 - Math.log((1 + sin) / (1 - sin)) / (4 * Math.PI)];
}

/** The reverse. */
export function unproject(x, y) {
  return [x * 360 - 180, (Math.atan(Math.sinh(Math.PI * (1 - 2 * y))) * 180) / Math.PI];
}

export class Store {
  /** Times are kept as seconds from `base`, as a float has seven digits. */
  constructor(base) {
    this.base = base;
    this.origin = [0.5, 0.5];
    this.all = new Map();
    this.names = [];
    this.kinds = new Map();
    this.values = new Float32Array(STRIDE * 1024);
    this.isChanged = true;
  }

  get size() {
    return this.names.length;
  }

  /** An object is at a place; what is older than what is known is left out. Returns whether anything changed. */
  put(report) {
    const { entity } = report;
    const known = this.all.get(entity);
    if (known && known.time > report.time) return false;
    const place = known ? known.place : this.names.push(entity) - 1;
    this.all.set(entity, { ...report, place });
    if ((place + 1) * STRIDE > this.values.length) {
      const larger = new Float32Array(this.values.length * 2);
      larger.set(this.values);
      this.values = larger;
    }
    this.write(place, report);
    return true;
  }

  write(place, { entity, lon, lat, time, course }) {
    const [x, y] = project(lon, lat);
    const at = place * STRIDE;
    let dx = x - this.origin[0];
    // The copy of the world that is nearest to what is seen.
    dx -= Math.round(dx);
    this.values[at] = dx;
    this.values[at + 1] = y - this.origin[1];
    this.values[at + 2] = time - this.base;
    this.values[at + 3] = course === undefined ? -10 : (course * Math.PI) / 180;
    this.values[at + 4] = this.kinds.get(entity) ?? KIND.plain;
    this.isChanged = true;
  }

  remove(entity) {
    const known = this.all.get(entity);
    if (!known) return;
    this.all.delete(entity);
    const last = this.names.pop();
    if (last !== entity) {
      // The last one takes the place that is free now.
      const moved = this.all.get(last);
      moved.place = known.place;
      this.names[known.place] = last;
      this.values.copyWithin(known.place * STRIDE, this.names.length * STRIDE, (this.names.length + 1) * STRIDE);
    }
    this.isChanged = true;
  }

  clear() {
    this.all.clear();
    this.names.length = 0;
    this.isChanged = true;
  }

  /** Measures from another origin, near what is seen: floats are exact to a centimetre only there. */
  moveOrigin(origin) {
    this.origin = origin;
    for (const object of this.all.values()) this.write(object.place, object);
  }

  /** Marks objects: a Map of names and kinds takes the place of the one before. */
  mark(kinds) {
    const changed = new Set([...this.kinds.keys(), ...kinds.keys()]);
    this.kinds = kinds;
    for (const entity of changed) {
      const known = this.all.get(entity);
      if (known) this.write(known.place, known);
    }
  }
}
