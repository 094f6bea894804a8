// Lines of latitude and longitude for what is visible: the ground of the map where there is no other.

const STEPS = [45, 30, 20, 10, 5, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005, 0.0002, 0.0001];
/** So many lines go through the longer side at most. */
const LINES = 9;
const LATITUDE = 85;

/** The step of lines, degrees. */
export function stepOf(span) {
  let best = STEPS[0];
  for (const step of STEPS) {
    if (span / step <= LINES) best = step;
  }
  return best;
}

/** Lines as GeoJSON, and the places of their labels. */
export function graticule([west, south, east, north]) {
  const step = stepOf(Math.max(east - west, north - south, 1e-6));
  const [low, high] = [Math.max(-LATITUDE, south), Math.min(LATITUDE, north)];
  const margin = (east - west) / 2;
  const [lines, labels] = [[], []];
  const digits = Math.max(0, Math.ceil(-Math.log10(step)));
  for (let i = Math.floor((west - margin) / step); i * step <= east + margin; i += 1) {
    const lon = i * step;
    lines.push([
      [lon, Math.max(-LATITUDE, low - (high - low) / 2)],
      [lon, Math.min(LATITUDE, high + (high - low) / 2)],
    ]);
    labels.push({ lon, text: degrees(((((lon + 180) % 360) + 360) % 360) - 180, 'EW', digits) });
  }
  for (let i = Math.ceil((low - (high - low) / 2) / step); i * step <= high + (high - low) / 2; i += 1) {
    const lat = i * step;
    if (Math.abs(lat) > LATITUDE) continue;
    lines.push([
      [west - margin, lat],
      [east + margin, lat],
    ]);
    labels.push({ lat, text: degrees(lat, 'NS', digits) });
  }
  return { geometry: { type: 'MultiLineString', coordinates: lines }, labels, step };
}

function degrees(value, [plus, minus], digits) {
  const text = Math.abs(value).toFixed(digits);
  if (Number(text) === 0) return '0°';
  return `${text}° ${value < 0 ? minus : plus}`;
}
