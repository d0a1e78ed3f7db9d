// Words, times and sizes. Which action fits and why something failed comes from the Hub; only how it is said is here.

export const PAUSING = ['preparing', 'checkpointing', 'saved', 'stopping'];
const RESUMING = ['waiting', 'restoring'];

/** Something goes on that ends by itself within seconds or minutes. */
export function underWay(view) {
  return (
    PAUSING.includes(view.phase) ||
    RESUMING.includes(view.phase) ||
    view.phase === 'deleting' ||
    Boolean(view.hub?.pending)
  );
}

/** A record is open: JupyterHub's own words (running, stopped) do not describe the server. */
export function open(view) {
  return view.phase !== 'running';
}

/** Badge: { label, look (Bootstrap colour), busy }. */
export function badge(view) {
  if (PAUSING.includes(view.phase)) {
    return { label: 'Pausing', look: 'primary', busy: true };
  }
  switch (view.phase) {
    case 'paused':
      return { label: 'Paused', look: 'secondary', icon: 'fa-pause' };
    case 'waiting':
      return { label: 'Waiting', look: 'warning', busy: true };
    case 'restoring':
      return { label: 'Restoring', look: 'primary', busy: true };
    case 'unproven':
      return { label: 'Unproven', look: 'danger', icon: 'fa-triangle-exclamation' };
    case 'deleting':
      return { label: 'Discarding', look: 'secondary', busy: true };
  }
  if (view.hub?.pending === 'spawn') {
    return { label: 'Starting', look: 'primary', busy: true };
  }
  if (view.hub?.pending) {
    return { label: 'Stopping', look: 'secondary', busy: true };
  }
  if (view.hub?.ready) {
    return { label: 'Running', look: 'success', icon: 'fa-play' };
  }
  return { label: 'Stopped', look: 'light', icon: 'fa-stop' };
}

/** The way of a pause or a resume: [{ label, phase }], or [] when none is under way. */
export function steps(view) {
  if (PAUSING.includes(view.phase)) {
    return [
      { phase: 'preparing', label: 'Get ready' },
      { phase: 'checkpointing', label: 'Save memory' },
      { phase: 'saved', label: 'Saved' },
      { phase: 'stopping', label: 'Free the machine' }
    ];
  }
  if (RESUMING.includes(view.phase)) {
    return [
      { phase: 'waiting', label: 'Wait for room' },
      { phase: 'restoring', label: 'Restore memory' }
    ];
  }
  return [];
}

/** Button of an action: { label, look }. */
export function button(action, view) {
  switch (action) {
    case 'open':
      return { label: 'Open', look: view.phase === 'unproven' ? 'outline-primary' : 'primary' };
    case 'start':
      return { label: 'Start', look: 'primary' };
    case 'pause':
      return { label: 'Pause', look: 'outline-primary' };
    case 'resume':
      return PAUSING.includes(view.phase)
        ? { label: 'Resume when paused', look: 'outline-primary' }
        : { label: 'Resume', look: 'primary' };
    case 'retry':
      return { label: 'Try again to restore', look: 'primary' };
    case 'accept':
      return { label: 'Keep this new server', look: 'outline-secondary' };
    case 'fresh':
      return { label: 'Start fresh', look: 'outline-secondary' };
    case 'discard':
      return { label: 'Discard', look: 'outline-danger' };
    case 'cancel':
      return { label: PAUSING.includes(view.phase) ? 'Cancel the pause' : 'Stop resuming', look: 'outline-secondary' };
    case 'stop':
      return { label: 'Stop', look: 'outline-danger' };
  }
  return null;
}

/** Actions in the order in which they stand, the most wanted first. */
const ORDER = ['resume', 'retry', 'open', 'start', 'pause', 'cancel', 'accept', 'fresh', 'stop', 'discard'];

/** What to offer of the view's actions. Stopping a resume is cancelling it: one button for both. */
export function offered(view) {
  const resuming = RESUMING.includes(view.phase) && view.actions.includes('cancel');
  return ORDER.filter(action => view.actions.includes(action) && !(resuming && action === 'stop'));
}

/** What a second press confirms: { question, yes, no } or null when an action needs none. */
export function confirmation(action, view) {
  const size = view.snapshot?.bytes;
  switch (action) {
    case 'discard':
      return {
        question:
          `Discard the snapshot${size ? ` of ${bytes(size)}` : ''}? What the server held in memory is gone for good. Files in the home stay.` +
          (view.snapshots?.length > 1 ? ' Earlier snapshots stay until they expire, but no Resume leads to them.' : ''),
        yes: 'Discard the snapshot',
        no: 'Keep it',
        look: 'danger'
      };
    case 'fresh':
      return {
        question:
          'Start a new, empty server? The snapshot is kept as long as before, but Resume no longer leads to it.',
        yes: 'Start fresh',
        no: 'Not now',
        look: 'primary'
      };
    case 'accept':
      return {
        question: 'Keep the new server that is running now? The snapshot is kept until it expires or is discarded.',
        yes: 'Keep the new server',
        no: 'Not now',
        look: 'primary'
      };
    case 'stop':
      return {
        question:
          view.phase === 'unproven'
            ? 'Stop the new server? The snapshot is kept, and the server is paused again.'
            : 'Stop the server without saving its memory? Variables and running cells are lost. Files in the home stay.',
        yes: view.phase === 'unproven' ? 'Stop the new server' : 'Stop without saving',
        no: 'Let it run',
        look: 'danger'
      };
  }
  return null;
}

const locale = () => navigator.languages?.[0] ?? navigator.language ?? 'en';

const UNITS = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];

/** 1234567890 -> "1.2 GB" (powers of 1000, as disks and clouds count). */
export function bytes(count) {
  let unit = 0;
  let value = Number(count);
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit > 0 && value < 9.95 ? 1 : 0;
  return `${value.toLocaleString(locale(), { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${UNITS[unit]}`;
}

/** Seconds as a person says them: "4 s", "3 min", "2 h", "5 days". */
export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 10) {
    return `${s.toLocaleString(locale(), { maximumFractionDigits: 1 })} s`;
  }
  if (s < 90) {
    return `${Math.round(s)} s`;
  }
  if (s < 90 * 60) {
    return `${Math.round(s / 60)} min`;
  }
  if (s < 36 * 3600) {
    return `${Math.round(s / 3600)} h`;
  }
  return `${Math.round(s / 86400)} days`;
}

function midnight(date) {
  return new Date(date.getFullYear(), date.getMonth(), date.getDate()).getTime();
}

/** Seconds since the epoch -> "today 14:05", "yesterday 9:30", "Mon, 3 Aug, 14:05". */
export function when(seconds, now = Date.now()) {
  const date = new Date(seconds * 1000);
  const today = new Date(now);
  const clock = date.toLocaleTimeString(locale(), { timeStyle: 'short' });
  const days = Math.round((midnight(date) - midnight(today)) / 86400e3);
  if (days === 0) {
    return `today ${clock}`;
  }
  if (days === -1) {
    return `yesterday ${clock}`;
  }
  if (days === 1) {
    return `tomorrow ${clock}`;
  }
  const day = { weekday: 'short', day: 'numeric', month: 'short' };
  if (date.getFullYear() !== today.getFullYear()) {
    day.year = 'numeric';
  }
  return `${date.toLocaleDateString(locale(), day)}, ${clock}`;
}

/** The same, to the second and with the zone: for a tooltip. */
export function exactly(seconds) {
  return new Date(seconds * 1000).toLocaleString(locale(), { dateStyle: 'full', timeStyle: 'long' });
}

/** `count` things: plural(2, "kernel") -> "2 kernels". */
export function plural(count, word) {
  return `${count} ${word}${count === 1 ? '' : 's'}`;
}
