// Numbers as people read them.

const WINDS = ['north', 'north-east', 'east', 'south-east', 'south', 'south-west', 'west', 'north-west'];

/** How long ago: seconds in words. */
export function ago(seconds) {
  if (seconds < 1.5) return 'now';
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 129600) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86400)} days ago`;
}

/** How long it takes: seconds in words. */
export function span(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return `${(seconds / 3600).toFixed(1)} h`;
}

/** Metres in words. */
export function length(metres) {
  if (metres < 1000) return `${Math.round(metres)} m`;
  return `${(metres / 1000).toFixed(metres < 10000 ? 2 : 1)} km`;
}

/** Metres a second in words. */
export function speed(metres) {
  return metres === undefined ? '' : `${Math.round(metres * 3.6)} km/h`;
}

/** A course in words. */
export function course(degrees) {
  return degrees === undefined ? '' : WINDS[Math.round(degrees / 45) % 8];
}

/** Degrees of a position. */
export function position(lon, lat) {
  const part = (value, [plus, minus]) => `${Math.abs(value).toFixed(5)}° ${value < 0 ? minus : plus}`;
  return `${part(lat, ['N', 'S'])}, ${part(lon, ['E', 'W'])}`;
}

/** A time of the day, with the day where it is not today. */
export function clock(seconds, now = Date.now() / 1000) {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
  const isToday = at.toDateString() === new Date(now * 1000).toDateString();
  return isToday ? time : `${at.toLocaleDateString()} ${time}`;
}

/** A whole number with its thousands apart. */
export function count(number) {
  return Math.round(number).toLocaleString('en');
}

/** One or many of something. */
export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}
