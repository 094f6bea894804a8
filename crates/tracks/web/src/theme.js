// Light and dark: as the system wants it, until somebody switches. The map takes its colours from the style sheet.

const KEY = 'tracks-theme';
const NEXT = { auto: 'light', light: 'dark', dark: 'auto' };
const NAMES = { auto: 'as the system', light: 'light', dark: 'dark' };

/** Sets the switch up; `changed` is called whenever the colours are others. */
export function theme(button, changed) {
  const system = matchMedia('(prefers-color-scheme: dark)');
  let wish = localStorage.getItem(KEY) ?? 'auto';
  const apply = () => {
    const isDark = wish === 'auto' ? system.matches : wish === 'dark';
    document.documentElement.dataset.theme = isDark ? 'dark' : 'light';
    button.dataset.wish = wish;
    button.setAttribute('aria-label', `Colours: ${NAMES[wish]}. Switch`);
    button.title = `Colours: ${NAMES[wish]}`;
    changed();
  };
  system.addEventListener('change', apply);
  button.addEventListener('click', () => {
    wish = NEXT[wish];
    localStorage.setItem(KEY, wish);
    apply();
  });
  apply();
}

/** A colour of the style sheet. */
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The same as three numbers from 0 to 1. */
export function rgb(name) {
  const hex = color(name).replace('#', '');
  return [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16) / 255);
}
