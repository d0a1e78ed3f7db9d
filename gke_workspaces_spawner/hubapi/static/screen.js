// A place on a page that shows servers and keeps itself true; what each kind of page makes of it is in workspaces.js.

import { HubError, discardKept, loginPage, look, perform, safeUrl, spawnPage } from './api.js';
import { follow } from './follow.js';
import { confirmation, underWay } from './words.js';

export const me = () => window.jhdata?.user ?? '';
export const keyOf = view => `${view.user}/${view.server}`;

/** Who pressed Resume wants to get into the server as soon as it is there, also from the next page. */
const goOn = {
  name: view => `gke-workspaces-go-on ${keyOf(view)}`,
  set(view) {
    sessionStorage.setItem(this.name(view), JSON.stringify({ at: Date.now(), revision: view.revision }));
  },
  clear(view) {
    sessionStorage.removeItem(this.name(view));
  },
  check(view) {
    const asked = JSON.parse(sessionStorage.getItem(this.name(view)) ?? 'null');
    if (!asked) {
      return;
    }
    const age = Date.now() - asked.at;
    // what was seen before the press, or is on its way to what was asked, says nothing of how that ended
    const ended = view.revision > asked.revision && view.intent === 'none';
    if (view.phase === 'running' && view.hub?.ready) {
      this.clear(view);
      const url = safeUrl(view.urls?.server);
      if (url) {
        location.assign(url);
      }
    } else if ((ended && (view.phase === 'unproven' || (!underWay(view) && view.reason))) || age > 30 * 60e3) {
      this.clear(view);
    }
  }
};

/** The state of the screen for each server: which button is in flight, which asks to be confirmed, what went wrong. */
export class Screen {
  constructor(mount) {
    this.mount = mount;
    this.views = [];
    this.uis = new Map();
    this.common = {};
    this.follower = null;
  }

  ui(view) {
    if (!this.uis.has(keyOf(view))) {
      this.uis.set(keyOf(view), {});
    }
    return { ...this.common, ...this.uis.get(keyOf(view)) };
  }

  set(view, change) {
    this.uis.set(keyOf(view), { ...this.uis.get(keyOf(view)), ...change });
    this.paint();
  }

  /** A press of a button. `null` takes a question back; `kept` is the id of an earlier pause, for discarding what is kept of it. */
  async act(view, action, confirmed = false, kept = null) {
    if (action === null) {
      const asked = this.uis.get(keyOf(view))?.confirm ?? 'kept';
      this.set(view, { confirm: null, confirmKept: null });
      this.focus(view, `[data-action="${asked}"]`);
      return;
    }
    if (action === 'open') {
      const url = safeUrl(view.urls?.server);
      if (url) {
        location.assign(url);
      }
      return;
    }
    if (action === 'start') {
      location.assign(spawnPage(view));
      return;
    }
    if (!confirmed && (kept || confirmation(action, view))) {
      this.set(view, kept ? { confirmKept: kept, error: null } : { confirm: action, error: null });
      this.focus(view, '[data-gke-focus="confirm"]');
      return;
    }
    this.set(view, { confirm: null, confirmKept: null, busy: action, error: null });
    this.focus(view, `[data-action="${action}"]`);
    const leads = ['resume', 'fresh', 'retry'].includes(action) && view.user === me();
    if (leads) {
      goOn.set(view);
    }
    this.follower?.kick();
    try {
      await (kept ? discardKept(view, kept) : perform(action, view));
    } catch (error) {
      if (!(error instanceof HubError)) {
        throw error;
      }
      if (leads) {
        goOn.clear(view);
      }
      this.set(view, { error });
    } finally {
      this.set(view, { busy: null });
      this.follower?.kick();
    }
  }

  /** Who watches the start of his own server wants to get into it, from whichever page he is on by then. */
  goOnLater(view) {
    if (view.user === me()) {
      goOn.set(view);
    }
  }

  /** Where the server stands on the page. */
  place(view) {
    return (
      [...this.mount.querySelectorAll('[data-server]')].find(
        item => item.dataset.server === view.server && item.dataset.user === view.user
      ) ?? this.mount
    );
  }

  focus(view, selector) {
    this.place(view).querySelector(selector)?.focus();
  }

  /** Paint, and if what had the focus is gone (its button has no place any more), give it to the server's title. */
  paint() {
    const had = document.activeElement;
    const view = had && this.mount.contains(had) ? this.views.find(item => this.place(item).contains(had)) : null;
    this.draw();
    if (view && !had.isConnected) {
      this.focus(view, '[data-gke-focus="title"]');
    }
  }

  show(views) {
    this.views = views;
    this.common = {};
    for (const view of views) {
      goOn.check(view);
    }
    this.paint();
  }

  trouble(error, failed) {
    if (error.status === 403 && error.reason !== 'not_allowed') {
      this.common = { login: loginPage() };
    } else if (error.status === 403 || error.status === 404) {
      this.common = { gone: error.message };
      this.views = [];
    } else {
      this.common = failed > 1 ? { unreachable: true } : {};
    }
    this.paint();
    return error.status !== 403 && error.status !== 404;
  }

  /** Start to follow, from what the page already knows. */
  start() {
    const known = this.mount.querySelector('script[type="application/json"]');
    this.root = document.createElement('div');
    this.root.className = 'gke-ws-root';
    this.mount.prepend(this.root);
    this.follower = follow({
      ask: () => look(this.mount.dataset.follow),
      tell: answer => this.show(answer.workspaces ?? [answer]),
      trouble: (error, failed) => this.trouble(error, failed),
      hurry: answer => (answer.workspaces ?? [answer]).some(underWay),
      mark: answer => JSON.stringify(answer, (key, value) => (key === 'age' ? undefined : value))
    });
    if (known) {
      const answer = JSON.parse(known.textContent);
      this.show(answer.workspaces ?? [answer]);
    }
    this.follower.kick();
    // "for 12 s" grows while it is looked at; no request is made
    setInterval(() => document.visibilityState === 'visible' && this.views.some(underWay) && this.paint(), 1000);
  }

  options() {
    return { me: me(), now: Date.now() };
  }
}
