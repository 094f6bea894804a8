// The service as a client sees it, and objects whose places are known.

export class Service {
  constructor(url, fleet) {
    this.base = new URL(`v1/fleets/${fleet}/`, url);
  }

  async call(path, method = 'GET', body = undefined) {
    const sent = { method, body: body && JSON.stringify(body), signal: AbortSignal.timeout(30_000) };
    const response = await fetch(new URL(path, this.base), sent);
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    return response.status === 204 ? null : response.json();
  }

  async report(reports) {
    const taken = await this.call('reports?ack=visible', 'POST', reports);
    if (taken.refused.length > 0) throw new Error(`refused: ${JSON.stringify(taken.refused[0])}`);
  }

  within(query) {
    return this.call(`within?limit=10000&${query}`);
  }
}

/** 400 objects on a grid of 20 by 20, some 110 m apart, around 10 east, 50 north. */
export function grid(now) {
  const all = [];
  for (let i = 0; i < 400; i += 1) {
    const [row, column] = [Math.floor(i / 20), i % 20];
    all.push({
      entity: `still-${String(i).padStart(3, '0')}`,
      lat: 50 + (row - 9.5) / 1000,
      lon: 10 + (column - 9.5) / 600,
      time: now - 1,
      speed: i % 20,
      course: (i * 37) % 360,
    });
  }
  return all;
}

/** One that has driven for five minutes, and reported every five seconds. */
export function drive(now) {
  const all = [];
  for (let i = 0; i <= 60; i += 1) {
    const angle = i / 12;
    all.push({
      entity: 'driver',
      lat: 50 + 0.006 * Math.sin(angle),
      lon: 10 + 0.009 * Math.cos(angle),
      time: now - 301 + i * 5,
      speed: 9,
      course: (360 - (angle * 180) / Math.PI + 360) % 360,
    });
  }
  return all;
}
