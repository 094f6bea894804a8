// Areas and distances, without a map: what the service takes and what is drawn are turned into each other here.
//
// Positions are [longitude, latitude] in degrees. Distances are on the sphere that the service uses.

export const RADIUS = 6371008.8;
const RADIAN = Math.PI / 180;

/** Metres between two positions. */
export function distance([lon1, lat1], [lon2, lat2]) {
  const dLat = (lat2 - lat1) * RADIAN;
  const dLon = (lon2 - lon1) * RADIAN;
  const a = Math.sin(dLat / 2) ** 2 + Math.cos(lat1 * RADIAN) * Math.cos(lat2 * RADIAN) * Math.sin(dLon / 2) ** 2;
  return 2 * RADIUS * Math.asin(Math.min(1, Math.sqrt(a)));
}

/** Where one gets from a position in a direction (radians from north over east), metres. */
export function destination([lon, lat], bearing, metres) {
  const angle = metres / RADIUS;
  const from = lat * RADIAN;
  const to = Math.asin(Math.sin(from) * Math.cos(angle) + Math.cos(from) * Math.sin(angle) * Math.cos(bearing));
  const east = Math.atan2(
    Math.sin(bearing) * Math.sin(angle) * Math.cos(from),
    Math.cos(angle) - Math.sin(from) * Math.sin(to),
  );
  return [lon + east / RADIAN, to / RADIAN];
}

/** A closed ring around a position. */
export function circleRing(centre, radius, corners = 96) {
  const ring = [];
  for (let i = 0; i < corners; i += 1) ring.push(destination(centre, (2 * Math.PI * i) / corners, radius));
  ring.push(ring[0]);
  return ring;
}

/** A closed ring; where west > east it crosses the antimeridian. */
export function boxRing([west, south, east, north]) {
  const right = west > east ? east + 360 : east;
  return [
    [west, south],
    [right, south],
    [right, north],
    [west, north],
    [west, south],
  ];
}

/** West, south, east, north of positions that do not cross the antimeridian. */
export function bounds(positions) {
  let [west, south, east, north] = [Infinity, Infinity, -Infinity, -Infinity];
  for (const [lon, lat] of positions) {
    west = Math.min(west, lon);
    east = Math.max(east, lon);
    south = Math.min(south, lat);
    north = Math.max(north, lat);
  }
  return [west, south, east, north];
}

/** Whether a position is within west, south, east, north. */
export function isWithin([west, south, east, north], lon, lat) {
  if (lat < south || lat > north) return false;
  return west <= east ? lon >= west && lon <= east : lon >= west || lon <= east;
}

/** The outline of all places so many metres beside a line, as a closed ring: for drawing only. */
export function corridorRing(line, metres) {
  const side = (points) => {
    const ring = [];
    for (let i = 0; i < points.length; i += 1) {
      const before = i > 0 ? bearing(points[i - 1], points[i]) : bearing(points[i], points[i + 1]);
      const after = i + 1 < points.length ? bearing(points[i], points[i + 1]) : before;
      const turn = Math.atan2(Math.sin(after - before), Math.cos(after - before));
      if (turn > 0) {
        // The outer side of a bend is round.
        for (let j = 0; j <= 6; j += 1)
          ring.push(destination(points[i], before + (turn * j) / 6 - Math.PI / 2, metres));
      } else {
        const reach = metres / Math.max(0.3, Math.cos(turn / 2));
        ring.push(destination(points[i], before + turn / 2 - Math.PI / 2, reach));
      }
    }
    const [last, previous] = [points.at(-1), points.at(-2)];
    const end = bearing(previous, last);
    for (let j = 1; j < 12; j += 1) ring.push(destination(last, end - Math.PI / 2 + (Math.PI * j) / 12, metres));
    return ring;
  };
  const ring = [...side(line), ...side(line.toReversed())];
  ring.push(ring[0]);
  return ring;
}

/** From one position to another, radians from north over east. */
export function bearing([lon1, lat1], [lon2, lat2]) {
  const dLon = (lon2 - lon1) * RADIAN;
  const y = Math.sin(dLon) * Math.cos(lat2 * RADIAN);
  const from = Math.cos(lat1 * RADIAN) * Math.sin(lat2 * RADIAN);
  return Math.atan2(y, from - Math.sin(lat1 * RADIAN) * Math.cos(lat2 * RADIAN) * Math.cos(dLon));
}

/** An area of the service as what a map draws. */
export function geometryOf(area) {
  switch (area.type) {
    case 'Circle':
      return { type: 'Polygon', coordinates: [circleRing(area.center, area.radius)] };
    case 'Rectangle':
      return { type: 'Polygon', coordinates: [boxRing(area.bbox)] };
    case 'Corridor':
      return { type: 'Polygon', coordinates: [corridorRing(area.coordinates, area.width)] };
    default:
      return { type: 'Polygon', coordinates: area.coordinates };
  }
}

/** What a drawing tool made as an area of the service. `width`: of a corridor, metres. */
export function areaOf(kind, geometry, width = 50) {
  const round = ([lon, lat]) => [toSeven(wrapped(lon)), toSeven(lat)];
  if (kind === 'corridor') return { type: 'Corridor', coordinates: geometry.coordinates.map(round), width };
  const ring = geometry.coordinates[0];
  if (kind === 'polygon') return { type: 'Polygon', coordinates: geometry.coordinates.map((one) => one.map(round)) };
  const [west, south, east, north] = bounds(ring);
  if (kind === 'rectangle')
    return { type: 'Rectangle', bbox: [wrapped(west), south, wrapped(east), north].map(toSeven) };
  const centre = [(west + east) / 2, (south + north) / 2];
  const radius = Math.round(distance(centre, [centre[0], north]) * 10) / 10;
  return { type: 'Circle', center: round(centre), radius };
}

/** A longitude brought within −180 and 180. */
export function wrapped(lon) {
  return lon >= -180 && lon <= 180 ? lon : ((((lon + 180) % 360) + 360) % 360) - 180;
}

/** What is visible, as the service takes a rectangle: `[west, south, east, north]` of any longitudes. */
export function boxOf([west, south, east, north], margin = 0) {
  const [dx, dy] = [(east - west) * margin, (north - south) * margin];
  const [low, high] = [Math.max(-90, south - dy), Math.min(90, north + dy)];
  if (east - west + 2 * dx >= 360) return [-180, low, 180, high].map(toSeven);
  return [wrapped(west - dx), low, wrapped(east + dx), high].map(toSeven);
}

/** Whether a rectangle of the service has all of another one. */
export function hasAll(outer, inner) {
  if (inner[1] < outer[1] || inner[3] > outer[3]) return false;
  const width = ([west, , east]) => (east - west + 360) % 360 || (east === west ? 0 : 360);
  if (width(outer) === 360) return true;
  const from = (inner[0] - outer[0] + 360) % 360;
  return from + width(inner) <= width(outer);
}

const toSeven = (degrees) => Math.round(degrees * 1e7) / 1e7;
