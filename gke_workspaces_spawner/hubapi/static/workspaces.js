// Entry: finds the places that a page left for us, fills them with what the Hub says, and keeps them true.

import { HubError, discardKept, loginPage, look, perform, safeUrl, spawnPage } from "./api.js";
import { buttons, badgeOf, line, troubles, whole } from "./card.js";
import { h, patch } from "./dom.js";
import { follow } from "./follow.js";
import { bytes, confirmation, exactly, open, steps, underWay, when } from "./words.js";

const me = () => window.jhdata?.user ?? "";
const keyOf = (view) => `${view.user}/${view.server}`;

/** The state of the screen for each server: which button is in flight, which asks to be confirmed, what went wrong. */
class Screen {
  constructor(mount) {
    this.mount = mount;
    this.views = [];
    this.uis = new Map();
    this.common = {};
    this.follower = null;
  }

  ui(view) {
    if (!this.uis.has(keyOf(view))) this.uis.set(keyOf(view), {});
    return { ...this.common, ...this.uis.get(keyOf(view)) };
  }

  set(view, change) {
    this.uis.set(keyOf(view), { ...this.uis.get(keyOf(view)), ...change });
    this.paint();
  }

  /** A press of a button. `null` takes a question back; `kept` is the id of an earlier pause, for discarding what is kept of it. */
  async act(view, action, confirmed = false, kept = null) {
    if (action === null) {
      const asked = this.uis.get(keyOf(view))?.confirm ?? "kept";
      this.set(view, { confirm: null, confirmKept: null });
      this.focus(view, `[data-action="${asked}"]`);
      return;
    }
    if (action === "open") {
      const url = safeUrl(view.urls?.server);
      if (url) location.assign(url);
      return;
    }
    if (action === "start") {
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
    const leads = ["resume", "fresh", "retry"].includes(action) && view.user === me();
    if (leads) goOn.set(view);
    this.follower?.kick();
    try {
      await (kept ? discardKept(view, kept) : perform(action, view));
    } catch (error) {
      if (!(error instanceof HubError)) throw error;
      if (leads) goOn.clear(view);
      this.set(view, { error });
    } finally {
      this.set(view, { busy: null });
      this.follower?.kick();
    }
  }

  /** Where the server stands on the page. */
  place(view) {
    return [...this.mount.querySelectorAll("[data-server]")].find((item) => item.dataset.server === view.server && item.dataset.user === view.user) ?? this.mount;
  }

  focus(view, selector) {
    this.place(view).querySelector(selector)?.focus();
  }

  /** Paint, and if what had the focus is gone (its button has no place any more), give it to the server's title. */
  paint() {
    const had = document.activeElement;
    const view = had && this.mount.contains(had) ? this.views.find((item) => this.place(item).contains(had)) : null;
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
    if (error.status === 403 && error.reason !== "not_allowed") {
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
    this.root = document.createElement("div");
    this.root.className = "gke-ws-root";
    this.mount.prepend(this.root);
    this.follower = follow({
      ask: () => look(this.mount.dataset.follow),
      tell: (answer) => this.show(answer.workspaces ?? [answer]),
      trouble: (error, failed) => this.trouble(error, failed),
      hurry: (answer) => (answer.workspaces ?? [answer]).some(underWay),
      mark: (answer) => JSON.stringify(answer, (key, value) => (key === "age" ? undefined : value)),
    });
    if (known) {
      const answer = JSON.parse(known.textContent);
      this.show(answer.workspaces ?? [answer]);
    }
    this.follower.kick();
    // "for 12 s" grows while it is looked at; no request is made
    setInterval(() => document.visibilityState === "visible" && this.views.some(underWay) && this.paint(), 1000);
  }

  options() {
    return { me: me(), now: Date.now() };
  }
}

/** Who pressed Resume wants to get into the server as soon as it is there, also from the next page. */
const goOn = {
  name: (view) => `gke-workspaces-go-on ${keyOf(view)}`,
  set(view) {
    sessionStorage.setItem(this.name(view), String(Date.now()));
  },
  clear(view) {
    sessionStorage.removeItem(this.name(view));
  },
  check(view) {
    const asked = Number(sessionStorage.getItem(this.name(view)) ?? 0);
    if (!asked) return;
    if (view.phase === "running" && view.hub?.ready) {
      this.clear(view);
      const url = safeUrl(view.urls?.server);
      if (url) location.assign(url);
    } else if (view.phase === "unproven" || (!underWay(view) && view.reason) || Date.now() - asked > 30 * 60e3) {
      if (Date.now() - asked > 2000) this.clear(view);
    }
  },
};

class OneScreen extends Screen {
  draw() {
    const [view] = this.views;
    const gone = this.common.gone && h("p", { key: "gone", class: "alert alert-warning" }, this.common.gone);
    const files = view?.phase === "paused" ? safeUrl(view.urls?.files) : null;
    patch(this.root, view ? whole(view, this.ui(view), (...press) => this.act(view, ...press), { ...this.options(), files }) : [gone]);
    if (view) this.mount.dataset.phase = view.phase;
  }
}

/** On JupyterHub's page that starts a server: in place of its form, which stays for "Start fresh". */
class FormScreen extends OneScreen {
  start() {
    this.fresh = this.mount.querySelector("[data-gke-workspaces-fresh]");
    this.mount.classList.add("gke-ws-live");
    super.start();
  }

  act(view, action, confirmed) {
    if (action === "fresh" && this.fresh) {
      this.fresh.open = true;
      this.fresh.querySelector("input, select, textarea, button")?.focus();
      return undefined;
    }
    return super.act(view, action, confirmed);
  }

  draw() {
    super.draw();
    if (this.fresh) this.fresh.hidden = !this.views[0]?.actions.includes("fresh");
  }
}

/** In place of what JupyterHub says of a server that does not run, as long as a record is open. */
class InsteadScreen extends OneScreen {
  draw() {
    const [view] = this.views;
    const ours = Boolean(view) && (open(view) || this.came);
    if (ours) {
      this.came = true;
      super.draw();
    } else {
      patch(this.root, []);
    }
    document.body.classList.toggle("gke-ws-instead-on", ours);
  }
}

class ListScreen extends Screen {
  draw() {
    const others = this.views.filter((view) => view.user !== me());
    const own = this.views.filter((view) => view.user === me());
    const list = (key, label, views) => h("ul", { key, class: "list-group", "aria-label": label }, views.map((view) => this.line(view)));
    patch(this.root, [
      h("div", { key: "trouble" }, troubles(null, this.common)),
      this.common.gone && h("p", { key: "gone", class: "alert alert-warning" }, this.common.gone),
      own.length
        ? list("own", "Your servers", own)
        : !this.common.gone && h("p", { key: "none", class: "alert alert-light border" }, "You have no server yet. ", h("a", { href: `${window.jhdata?.base_url ?? "/hub/"}home` }, "Start one from Home"), "."),
      others.length ? [h("h2", { key: "others-title", class: "h4 mt-4" }, "Servers of others"), list("others", "Servers of others", others)] : null,
    ]);
  }

  line(view) {
    const ui = { ...this.uis.get(keyOf(view)) };
    return line(view, ui, (...press) => this.act(view, ...press), { ...this.options(), page: safeUrl(view.urls?.page) });
  }
}

/** On JupyterHub's home page: the default server as a card in place of its two buttons, named ones inside their table's rows. */
class HomeScreen extends Screen {
  rowOf(view) {
    return [...document.querySelectorAll("tr.home-server-row[data-server-name]")].find((row) => row.getAttribute("data-server-name") === view.server);
  }

  place(view) {
    return (view.server && this.rowOf(view)) || this.mount;
  }

  draw() {
    const own = this.views.filter((view) => view.user === me());
    const lines = [];
    for (const view of own) {
      const row = view.server ? this.rowOf(view) : null;
      if (row) {
        this.drawRow(row, view);
      } else {
        lines.push(line(view, { ...this.uis.get(keyOf(view)) }, (...press) => this.act(view, ...press), { ...this.options(), page: safeUrl(view.urls?.page) }));
      }
    }
    patch(this.root, [h("div", { key: "trouble" }, troubles(null, this.common)), lines.length ? h("ul", { key: "list", class: "list-group" }, lines) : null]);
    const stock = document.getElementById("start")?.closest(".row");
    stock?.classList.toggle("gke-ws-replaced", own.some((view) => !view.server));
  }

  drawRow(row, view) {
    const table = row.closest("table");
    if (!table.querySelector("[data-gke-state]")) {
      const head = document.createElement("th");
      head.textContent = "State";
      head.dataset.gkeState = "";
      table.querySelector("thead tr")?.children[0]?.after(head);
      for (const cell of table.querySelectorAll("td[colspan]")) cell.colSpan += 1;
    }
    let state = row.querySelector("td.gke-ws-state");
    let ours = row.querySelector("span.gke-ws-actions");
    if (!state) {
      state = document.createElement("td");
      state.className = "gke-ws-state";
      row.children[0].after(state);
      ours = document.createElement("span");
      ours.className = "gke-ws-actions";
      row.lastElementChild.prepend(ours);
    }
    const ui = { ...this.uis.get(keyOf(view)) };
    const page = safeUrl(view.urls?.page);
    patch(state, [
      h("a", { key: "page", class: "gke-ws-plainlink", href: page, "data-gke-focus": "title" }, badgeOf(view)),
      view.phase === "paused" && view.since ? h("div", { key: "since", class: "small text-body-secondary" }, `since ${when(view.since)}`) : null,
      steps(view).length && view.progress !== null ? h("div", { key: "part", class: "small text-body-secondary" }, `${Math.round(view.progress * 100)} %`) : null,
      troubles(view.reason ? { ...view, detail: null } : null, ui),
    ]);
    // a server that runs or stands still keeps JupyterHub's own buttons; Pause is added to them
    const without = open(view) ? [] : ["open", "start", "stop"];
    patch(ours, [buttons(view, ui, (...press) => this.act(view, ...press), { small: true, without })]);
    row.classList.toggle("gke-ws-led", open(view) || Boolean(ui.confirm));
    if (!open(view)) this.stockButtons(row, view);
  }

  /** JupyterHub sets these when it renders the page; a state that changed since then sets them again. */
  stockButtons(row, view) {
    const active = Boolean(view.hub?.ready || view.hub?.pending);
    row.querySelector(".stop-server")?.classList.toggle("hidden", !active);
    row.querySelector(".start-server")?.classList.toggle("hidden", active);
    row.querySelector(".delete-server")?.classList.toggle("hidden", active);
    row.querySelector(".server-link")?.classList.toggle("hidden", !view.hub?.ready);
  }
}

const SCREENS = { one: OneScreen, form: FormScreen, instead: InsteadScreen, list: ListScreen, home: HomeScreen };

for (const mount of document.querySelectorAll("[data-gke-workspaces]")) {
  new SCREENS[mount.dataset.gkeWorkspaces](mount).start();
}
for (const item of document.querySelectorAll("[data-gke-bytes]")) {
  item.textContent = bytes(item.dataset.gkeBytes);
}
for (const item of document.querySelectorAll("time[data-gke-time]")) {
  const seconds = Number(item.dataset.gkeTime);
  item.dateTime = new Date(seconds * 1000).toISOString();
  item.textContent = when(seconds);
  item.title = exactly(seconds);
}
