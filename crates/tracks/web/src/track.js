// Where one was at a time, from a track's points. No map, no clock.

/** All points of a track's parts in the order of time; a point that begins a part has `isFirst`. */
export function pointsOf(parts) {
  return parts.flatMap((part) => part.map((point, i) => (i === 0 ? { ...point, isFirst: true } : point)));
}

/** The number of points whose time is at most `time`. */
export function countUntil(points, time) {
  let [low, high] = [0, points.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].time <= time) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Where it was at a time: at a report exactly there, between two in proportion, in a gap where it was last seen.
 * Nothing before the first report.
 */
export function whereAt(points, time) {
  const count = countUntil(points, time);
  if (count === 0) return null;
  const [last, next] = [points[count - 1], points[count]];
  if (!next || next.isFirst || last.time === time) return { ...last, isExact: last.time === time };
  const share = (time - last.time) / (next.time - last.time);
  const east = ((((next.lon - last.lon + 180) % 360) + 360) % 360) - 180;
  return { ...last, lat: last.lat + share * (next.lat - last.lat), lon: last.lon + share * east, isExact: false };
}

/** Lines of a trail until a time, cut at gaps; longitudes go on beyond the antimeridian. */
export function linesUntil(points, time) {
  const lines = [];
  let line = null;
  const count = countUntil(points, time);
  for (let i = 0; i < count; i += 1) {
    const { lon, lat, isFirst } = points[i];
    if (isFirst || !line) {
      line = [[lon, lat]];
      lines.push(line);
      continue;
    }
    const before = line.at(-1)[0];
    line.push([before + ((((lon - before + 180) % 360) + 360) % 360) - 180, lat]);
  }
  const now = whereAt(points, time);
  if (now && line && !now.isExact && count < points.length && !points[count].isFirst) {
    line.push([line.at(-1)[0] + ((((now.lon - line.at(-1)[0] + 180) % 360) + 360) % 360) - 180, now.lat]);
  }
  return lines.filter((one) => one.length > 1);
}
