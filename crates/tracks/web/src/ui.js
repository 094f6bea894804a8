// Small parts of the page: making elements, tabs, messages, the bottom sheet of phones, the question for a token.

/** Makes an element: `make('button', {class: 'x', onclick}, 'text', child)`. Text is text, never markup. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (value === true) element.setAttribute(name, '');
    else if (value !== undefined && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export const find = (id) => document.getElementById(id);

/** Sets the text of an element, if it is another one: screen readers and layouts are not disturbed otherwise. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A message that goes away. Errors stay longer. */
export function toast(text, isError = false) {
  const box = find('toasts');
  const line = make('div', { class: isError ? 'toast error' : 'toast' }, text);
  // The same again takes the place of the one before.
  [...box.children].filter((one) => one.textContent === text).forEach((one) => one.remove());
  box.append(line);
  while (box.children.length > 3) box.firstChild.remove();
  setTimeout(() => line.remove(), isError ? 9000 : 4000);
}

/** Runs something and says in words what goes wrong. What was given up by the user is no error. */
export async function attempt(work) {
  try {
    return await work();
  } catch (error) {
    if (error.name !== 'AbortError') toast(error.message, true);
    return undefined;
  }
}

/** Tabs with the keyboard: arrows, Home and End. Returns a function that opens one. */
export function tabs(list, opened) {
  const all = [...list.querySelectorAll('[role=tab]')];
  const open = (name, focus = false) => {
    for (const tab of all) {
      const isIt = tab.dataset.tab === name;
      tab.setAttribute('aria-selected', isIt);
      tab.tabIndex = isIt ? 0 : -1;
      find(`panel-${tab.dataset.tab}`).hidden = !isIt;
      if (isIt && focus) tab.focus();
    }
    opened(name);
  };
  list.addEventListener('click', (event) => {
    const tab = event.target.closest('[role=tab]');
    if (tab) open(tab.dataset.tab);
  });
  list.addEventListener('keydown', (event) => {
    const at = all.indexOf(document.activeElement);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    open(all[(to + all.length) % all.length].dataset.tab, true);
  });
  return open;
}

/** The panel of phones: a sheet at the bottom that is low, half or high. Returns a function that sets it. */
export function sheet(panel, handle) {
  const steps = ['low', 'half', 'high'];
  const set = (step) => {
    panel.dataset.sheet = step;
    handle.setAttribute('aria-expanded', step !== 'low');
  };
  const move = (by) => set(steps[Math.max(0, Math.min(2, steps.indexOf(panel.dataset.sheet) + by))]);
  let from = null;
  handle.addEventListener('pointerdown', (event) => {
    from = event.clientY;
    handle.setPointerCapture(event.pointerId);
  });
  handle.addEventListener('pointerup', (event) => {
    if (from === null) return;
    const by = from - event.clientY;
    from = null;
    if (Math.abs(by) > 24) move(Math.sign(by));
    else set(panel.dataset.sheet === 'low' ? 'half' : 'low');
  });
  handle.addEventListener('keydown', (event) => {
    const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (by) move(by);
    else if (event.key === 'Enter' || event.key === ' ') set(panel.dataset.sheet === 'low' ? 'half' : 'low');
    else return;
    event.preventDefault();
  });
  return set;
}

/** Asks for a token until there is one. */
export function askToken(wasWrong) {
  const dialog = find('token');
  find('token-wrong').hidden = !wasWrong;
  dialog.showModal();
  return new Promise((done) => {
    const field = find('token-text');
    dialog.querySelector('form').addEventListener(
      'submit',
      (event) => {
        event.preventDefault();
        dialog.close();
        done(field.value.trim());
        field.value = '';
      },
      { once: true },
    );
    dialog.addEventListener('cancel', (event) => event.preventDefault());
    field.focus();
  });
}

/** Does something once things have been quiet for a while. */
export function later(ms, work) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(work, ms);
  };
}
